//! What was wrong, by kernel and line.

use std::collections::{BTreeSet, HashMap};

use bulkhead_guard::entry_of;
use bulkhead_softgpu::{Finding, Findings, Leak, Mistake, Tool};
use serde_json::Value;

use crate::source::{At, Sources, readable};

/// What was wrong with a program.
pub(super) struct Report {
    pub(super) wrong: Vec<Wrong>,
    /// Mistakes that were too many to be told.
    pub(super) left_out: u64,
    pub(super) leaks: Vec<Leak>,
    pub(super) leaks_left_out: u64,
    pub(super) allocations: u64,
    pub(super) calls: Vec<Call>,
    /// Kernels of which nothing was looked at.
    pub(super) unlooked: BTreeSet<String>,
    /// Whether something is wrong in code that tells no lines of its source.
    pub(super) lacks_lines: bool,
    pub(super) device: Device,
}

/// What became of the device that looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// It told all that it found.
    Told,
    /// Its executor was lost: leaks are not known, nor how often something was wrong.
    Lost,
    /// The program used none.
    Unused,
}

/// A call of CUDA that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) call: String,
    pub(super) code: u32,
    pub(super) name: String,
    pub(super) what: String,
    /// Who called, as far as the program's symbols tell.
    pub(super) by: Option<String>,
}

impl Call {
    /// Whether code was refused, of which nothing was looked at: `is_refusal` of `libos-cuda/src/calls.rs`.
    pub(super) fn is_refusal(&self) -> bool {
        const ASK: [&str; 3] = ["cuKernelGetFunction", "cuLibraryGet", "cuModuleGetFunction"];
        // No code for this device, not understood, not supported.
        const REFUSED: [u32; 3] = [209, 218, 801];
        ASK.iter().any(|begin| self.call.starts_with(begin)) && REFUSED.contains(&self.code)
    }

    /// Whether that was one kernel, and not an image with all of its kernels.
    pub(super) fn asks_for_a_kernel(&self) -> bool {
        ["cuKernelGetFunction", "cuLibraryGetKernel", "cuModuleGetFunction"].contains(&self.call.as_str())
    }
}

/// What is wrong in a line.
pub(super) struct Wrong {
    /// Which tool tells it.
    pub(super) tool: &'static str,
    /// The kind of mistake, for programs.
    pub(super) kind: &'static str,
    pub(super) kernel: String,
    pub(super) at: At,
    /// What stands there, where that is known.
    pub(super) text: String,
    pub(super) what: String,
    pub(super) block: [u32; 3],
    pub(super) thread: [u32; 3],
    /// Where another thread had a part in it.
    pub(super) other: Option<Elsewhere>,
    pub(super) count: u64,
}

/// Another thread: where, what stands there, and which.
pub(super) struct Elsewhere {
    pub(super) at: At,
    pub(super) text: String,
    pub(super) block: [u32; 3],
    pub(super) thread: [u32; 3],
}

impl Report {
    /// Of what the software GPU found, and of what kernels told of accesses that went astray and the library OS of calls.
    pub(super) fn of(
        findings: &Findings,
        astray: &str,
        calls: &str,
        sources: &mut Sources,
        device: Device,
    ) -> Self {
        let (mut wrong, left_out) = of_astray(astray, sources);
        let mut by_line = HashMap::new();
        for finding in &findings.list {
            let Some(new) = of_finding(finding, sources) else { continue };
            let other = new.other.as_ref().map(|other| other.at.clone());
            // An entry and its fast version are one kernel.
            let line = (new.kind, new.kernel.clone(), new.at.clone(), other);
            let index = *by_line.entry(line).or_insert(wrong.len());
            match wrong.get_mut(index) {
                Some(known) => known.count += new.count,
                None => wrong.push(new),
            }
        }
        let lacks_lines = |wrong: &Wrong| {
            matches!(wrong.at, At::Ptx(line) if line > 0) && !sources.tells_lines(&wrong.kernel)
        };
        Self {
            lacks_lines: wrong.iter().any(lacks_lines),
            wrong,
            left_out: left_out.saturating_add(findings.left_out),
            leaks: findings.leaks.clone(),
            leaks_left_out: findings.leaks_left_out,
            allocations: findings.allocations,
            calls: of_calls(calls),
            unlooked: of_unlooked(astray),
            device,
        }
    }

    /// How much is wrong, with the calls that failed or without; what was refused is not right either way.
    pub(super) fn errors(&self, counts_calls: bool) -> u64 {
        let calls = self.calls.iter().filter(|call| counts_calls || call.is_refusal()).count();
        let told = (self.wrong.len() + self.leaks.len() + calls) as u64;
        told.saturating_add(self.left_out).saturating_add(self.leaks_left_out)
    }
}

/// `None` where the guard's own instructions do it, which no program is to blame for.
fn of_finding(finding: &Finding, sources: &mut Sources) -> Option<Wrong> {
    let mut place = |(line, column): (u32, u32)| match finding.mistake.tool() {
        Tool::Synchronization => sources.place_of_wait(finding.text, line, column),
        _ => sources.place(finding.text, line, column),
    };
    let (at, text) = place(finding.at)?;
    let other = finding.other.and_then(|other| {
        let (at, text) = place(other.at)?;
        Some(Elsewhere { at, text, block: other.block, thread: other.thread })
    });
    // The guard's versions of a loop have the same waits in several places. A line may have several waits.
    let wait = |(line, column)| sources.line_of_wait(finding.text, line, column);
    let same = other.as_ref().and(finding.other).map(|other| wait(finding.at) == wait(other.at));
    match finding.mistake {
        Mistake::BarrierApart if same != Some(false) => return None,
        Mistake::NeverMet if same == Some(true) => return None,
        _ => {}
    }
    Some(Wrong {
        tool: finding.mistake.tool().name(),
        kind: kind(finding.mistake),
        kernel: entry_of(&finding.kernel).to_owned(),
        at,
        text,
        what: what(finding),
        block: finding.block,
        thread: finding.thread,
        other,
        count: finding.count,
    })
}

fn kind(mistake: Mistake) -> &'static str {
    match mistake {
        Mistake::GlobalUnwritten => "globalUnwritten",
        Mistake::SharedUnwritten => "sharedUnwritten",
        Mistake::ReadAfterWrite => "readAfterWrite",
        Mistake::WriteAfterWrite => "writeAfterWrite",
        Mistake::WriteAfterRead => "writeAfterRead",
        Mistake::BarrierExited => "barrierWithoutExited",
        Mistake::BarrierApart => "barrierApart",
        Mistake::NeverMet => "neverMet",
        Mistake::LanesExited => "lanesExited",
        Mistake::OwnLane => "ownLaneNotNamed",
        Mistake::Masks => "masksDiffer",
        Mistake::GlobalReadAfterWrite => "globalReadAfterWrite",
        Mistake::GlobalWriteAfterWrite => "globalWriteAfterWrite",
        Mistake::GlobalWriteAfterRead => "globalWriteAfterRead",
    }
}

fn what(finding: &Finding) -> String {
    let Finding { address, bytes, allocation, .. } = finding;
    match finding.mistake {
        Mistake::GlobalUnwritten => {
            let place = allocation.map_or_else(String::new, |(start, length)| {
                format!(": byte {} of the {length} bytes at {start:#x}", address.saturating_sub(start))
            });
            format!("read of {bytes} bytes of global memory that nobody has written{place}")
        }
        Mistake::SharedUnwritten => {
            format!("read of {bytes} bytes of shared memory, of which byte {address} was written by nobody")
        }
        Mistake::GlobalReadAfterWrite => global_race("read", "wrote", finding),
        Mistake::GlobalWriteAfterWrite => global_race("write", "wrote", finding),
        Mistake::GlobalWriteAfterRead => global_race("write", "read", finding),
        Mistake::ReadAfterWrite => race("read", "wrote", finding),
        Mistake::WriteAfterWrite => race("write", "wrote", finding),
        Mistake::WriteAfterRead => race("write", "read", finding),
        Mistake::BarrierExited => {
            format!("a barrier of the block opens without {address} threads, which have exited")
        }
        Mistake::BarrierApart => "threads of the block meet at one barrier from different places".to_owned(),
        Mistake::NeverMet => "waits for threads that wait elsewhere and do not come".to_owned(),
        Mistake::LanesExited => format!("waited for the lanes {address:#x}, which exited instead of coming"),
        Mistake::OwnLane => format!("the mask {address:#x} does not name the lane itself"),
        Mistake::Masks => {
            format!("meets a lane that its mask {address:#x} names, and that names other lanes")
        }
    }
}

fn global_race(does: &str, did: &str, finding: &Finding) -> String {
    let Finding { address, bytes, allocation, .. } = finding;
    let (start, length) = allocation.unwrap_or((*address, *bytes));
    let at = address.saturating_sub(start);
    let who = match finding.other {
        Some(other) if other.block == finding.block => "another thread",
        _ => "a thread of another block",
    };
    format!(
        "{does} of {bytes} bytes of global memory, of which {who} {did} byte {at} of the {length} bytes at {start:#x}, with nothing between that orders them"
    )
}

fn race(does: &str, did: &str, finding: &Finding) -> String {
    let Finding { address, bytes, .. } = finding;
    format!(
        "{does} of {bytes} bytes of shared memory, of which another thread {did} byte {address}, with no barrier between"
    )
}

/// What is told, with the name of who freed something as its source has it.
fn with_readable(what: &str) -> String {
    let Some((before, by)) = what.split_once(", freed by ") else { return what.to_owned() };
    let (name, place) = by.split_at(by.find(" at ").unwrap_or(by.len()));
    format!("{before}, freed by {}{place}", readable(name))
}

/// Calls that failed: one a line, each once whichever process made it.
fn of_calls(told: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for record in told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let text = |name: &str| record[name].as_str().map(str::to_owned);
        let code = record["code"].as_u64().and_then(|code| u32::try_from(code).ok());
        let (Some(call), Some(code)) = (text("call"), code) else { continue };
        let (name, what) = (text("name").unwrap_or_default(), text("what").unwrap_or_default());
        if !calls.iter().any(|known| known.call == call && known.code == code) {
            calls.push(Call { call, code, name, what, by: text("by") });
        }
    }
    calls
}

/// Which kernels were not looked at, as is told beside what went astray.
fn of_unlooked(astray: &str) -> BTreeSet<String> {
    let records = astray.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter_map(|record| record["unlooked"].as_str().map(str::to_owned)).collect()
}

/// What kernels told of accesses that went astray: a record a line. Also how many were not kept.
fn of_astray(astray: &str, sources: &mut Sources) -> (Vec<Wrong>, u64) {
    let mut wrong: Vec<Wrong> = Vec::new();
    let mut by_line = HashMap::new();
    let mut left_out = 0_u64;
    for record in astray.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let Some(more) = record.get("more").and_then(Value::as_u64) {
            left_out = left_out.saturating_add(more);
            continue;
        }
        if record.get("unlooked").is_some() {
            continue;
        }
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let number =
            |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let triple = |name: &str| std::array::from_fn(|axis| number(&record[name][axis]));
        let (file, line) = (text("file"), number(&record["line"]));
        let (at, stands) = if file.is_empty() {
            let line = number(&record["ptxLine"]);
            (At::Ptx(line), sources.text_of_entry(&text("entry"), line))
        } else {
            let stands = sources.text(&file, line);
            (At::Source(file, line), stands)
        };
        let told = text("what");
        // Behind who did it, which is told apart.
        let told = told.split_once("thread: [").and_then(|(_, rest)| rest.split_once("] "));
        let what = told.map_or_else(|| text("what"), |(_, what)| with_readable(what));
        let kind = match () {
            () if what.ends_with("misaligned") => "misaligned",
            () if what.contains(": use after free, ") => "useAfterFree",
            () if what.starts_with("freed ") => "wrongFree",
            () => "astray",
        };
        let kernel = text("entry");
        let times = record["times"].as_u64().unwrap_or(1);
        // `b[i] = a[i]` may go astray twice.
        let key = (kernel.clone(), at.clone(), kind, verb(&what));
        let index = *by_line.entry(key).or_insert(wrong.len());
        match wrong.get_mut(index) {
            Some(known) => known.count = known.count.saturating_add(times),
            None => wrong.push(Wrong {
                tool: "memcheck",
                kind,
                kernel,
                at,
                text: stands,
                what,
                block: triple("block"),
                thread: triple("thread"),
                other: None,
                count: times,
            }),
        }
    }
    (wrong, left_out)
}

/// What is done there: `read`, `write`, `atomic`.
fn verb(what: &str) -> String {
    what.split_whitespace().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_freed_something_is_told_by_the_name_of_its_source() {
        for (what, told) in [
            ("read, freed by _Z7releaseR6Buffer at a.cu:3", "read, freed by release(Buffer&) at a.cu:3"),
            ("read, freed by main", "read, freed by main"),
            ("read", "read"),
        ] {
            assert_eq!(with_readable(what), told);
        }
    }

    #[test]
    fn a_kernel_is_told_by_the_name_that_its_program_gave_it() {
        let finding = |kernel: &str| Finding {
            mistake: Mistake::GlobalUnwritten,
            kernel: kernel.to_owned(),
            text: 1,
            at: (7, 5),
            block: [0; 3],
            thread: [0; 3],
            other: None,
            address: 0,
            bytes: 4,
            allocation: None,
            count: 1,
        };
        let names = ["bh_e_k", "__bh_fast_k", "bh_e_bh_e_k", "bh_e___bh_fast_k"];
        let findings = Findings { list: names.map(finding).to_vec(), ..Findings::default() };
        let report = Report::of(&findings, "", "", &mut Sources::default(), Device::Told);
        let told: Vec<_> = report.wrong.iter().map(|wrong| (wrong.kernel.as_str(), wrong.count)).collect();
        assert_eq!(told, [("k", 2), ("bh_e_k", 1), ("__bh_fast_k", 1)]);
    }

    #[test]
    fn accesses_astray_are_told_by_line_and_kind_and_counted() {
        let record = |line: u32, thread: u32, told: &str| {
            format!(
                "{{\"entry\":\"k\",\"file\":\"a.cu\",\"line\":{line},\"ptxLine\":9,\"block\":[1,0,0],\"thread\":[{thread},0,0],\
                 \"what\":\"a.cu:{line}: k: block: [1,0,0], thread: [{thread},0,0] {told}\"}}\n"
            )
        };
        let astray = record(3, 4, "read of 4 bytes at 0x10: 0 bytes behind the end of 8 bytes at 0x8")
            + &record(3, 5, "read of 4 bytes at 0x14: 4 bytes behind the end of 8 bytes at 0x8")
            + &record(3, 6, "read of 4 bytes at 0x15: misaligned")
            + &record(3, 4, "write of 4 bytes at 0x30: 8 bytes behind the end of 8 bytes at 0x20")
            + "no record\n{\"more\":7}\n{\"unlooked\":\"far\"}\n{\"unlooked\":\"far\"}\n";
        let failed =
            "{\"call\":\"cuMemFree_v2\",\"code\":1,\"name\":\"E\",\"what\":\"invalid\",\"by\":null}\n";
        let calls = format!("{failed}{failed}no record\n");
        let report = Report::of(&Findings::default(), &astray, &calls, &mut Sources::default(), Device::Told);
        let told: Vec<_> =
            report.wrong.iter().map(|wrong| (wrong.kind, wrong.count, wrong.thread[0])).collect();
        assert_eq!(told, [("astray", 2, 4), ("misaligned", 1, 6), ("astray", 1, 4)]);
        assert_eq!(report.wrong[0].what, "read of 4 bytes at 0x10: 0 bytes behind the end of 8 bytes at 0x8");
        assert_eq!((report.calls.len(), report.calls[0].call.as_str()), (1, "cuMemFree_v2"));
        assert_eq!((report.errors(false), report.errors(true)), (3 + 7, 3 + 7 + 1));
        let document = crate::sanitize::json::document(&report, false);
        assert_eq!(document["notLookedAt"], serde_json::json!(["far"]));
    }
}
