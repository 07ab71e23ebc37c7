//! `bulkhead cache`: machine code that is kept.

use std::{path::PathBuf, process::ExitCode};

use bulkhead_executor::{CACHE_BYTES, Cache, CacheOptions};
use clap::Args;
use serde_json::json;

use crate::{Failure, output, place};

/// Show or clear the machine code that executors keep.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder, as `bulkhead serve --cache` names it.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Remove everything that is kept. What runs goes on.
    #[arg(long)]
    clear: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let folder = arguments.cache.clone().map_or_else(place::cache_directory, Ok)?;
    let doing = format!("the cache in {}", folder.display());
    let failed = || Failure::doing(&doing);
    // Asking makes no folder.
    let contents = if folder.exists() {
        let cache =
            Cache::open(CacheOptions { folder: folder.clone(), bytes_max: CACHE_BYTES }).map_err(failed())?;
        if arguments.clear { cache.clear() } else { cache.contents() }.map_err(failed())?
    } else {
        bulkhead_executor::CacheContents::default()
    };
    let (entries, bytes) = (contents.entries, contents.bytes);
    if arguments.json {
        let told =
            json!({ "folder": folder, "entries": entries, "bytes": bytes, "cleared": arguments.clear });
        output::print(&format!("{told:#}\n"))?;
    } else {
        let done = if arguments.clear { "removed" } else { "kept" };
        output::print(&format!("{}: {entries} images, {bytes} bytes {done}\n", folder.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
