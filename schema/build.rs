//! Generates the bindings from the checked-in CodeGeneratorRequest: no `capnp` binary is needed.
//! `schema/regenerate.sh` makes the request anew after a change of a schema.

use std::{env, fs::File, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=schema.cgr");
    let mut command = capnpc::codegen::CodeGenerationCommand::new();
    command.output_directory(PathBuf::from(env::var("OUT_DIR")?));
    command.run(File::open("schema.cgr")?)?;
    Ok(())
}
