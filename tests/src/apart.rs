//! Hostile clients in a process of their own, as places are counted for processes: the test again, as its own child.
//!
//! The child does its act up to where it holds what it wanted, says so ([`hold`]), goes on when it is told to, and ends.
//! What it finds wrong it panics of; its test then fails.

use std::{
    io::{self, BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Stdio},
};

use crate::{
    act::{STOPPED, Seen, act_on},
    child,
    kernel::Kernel,
    patience::within,
};

/// What a child says when it holds what it wanted.
const HOLDING: &str = "holding";
/// Before what it has to tell people.
const TELLS: &str = "tells: ";

/// In the child: says that it holds what it wanted, and waits until it is told to go on, or nobody is there any more.
///
/// # Panics
/// Where it has no standard input.
pub fn hold() {
    println!("\n{HOLDING}");
    io::stdin().read_line(&mut String::new()).expect("a child has an input");
}

/// In the child: tells people something.
pub fn tell(what: &str) {
    println!("\n{TELLS}{what}");
}

/// Such a process.
pub struct Apart {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Apart {
    /// Starts a test again as a client of this kernel, and waits until it holds what it wanted.
    ///
    /// # Panics
    /// Where it does not come to hold that.
    #[must_use]
    pub fn holding(test: &str, kernel: &Kernel) -> Self {
        Self::started(test, &kernel.socket()).told(Some(HOLDING))
    }

    fn started(test: &str, socket: &Path) -> Self {
        let mut command = child::command(test, socket);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a client starts");
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Self { child, lines }
    }

    /// Reads what it says up to a line, or to its end.
    fn told(mut self, last: Option<&'static str>) -> Self {
        let mut lines = self.lines.take().expect("its output is read by one");
        self.lines = Some(within("a hostile client", move || {
            for line in lines.by_ref().map_while(Result::ok) {
                if let Some(told) = line.strip_prefix(TELLS) {
                    println!("  {told}");
                }
                if Some(line.as_str()) == last {
                    return lines;
                }
            }
            assert!(last.is_none(), "a hostile client ended before it held what it wanted");
            lines
        }));
        self
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to go on, and waits until it ends.
    ///
    /// # Panics
    /// Where it did not end well.
    pub fn goes_on(mut self) {
        drop(self.child.stdin.take());
        let mut ended = self.told(None);
        let status = ended.child.wait().expect("a child can be waited for");
        assert!(status.success(), "a hostile client has failed: {status}");
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Does something hostile to a kernel from a process of its own, which is this test again. What is done meanwhile is
/// done while that holds what it wanted.
///
/// # Panics
/// As [`act_on`], and where the hostile process fails.
pub fn act_apart(kernel: &Kernel, name: &str, test: &str, meanwhile: impl FnOnce(&Kernel)) -> Seen {
    act_on(kernel, name, STOPPED, |kernel| {
        let hostile = Apart::holding(test, kernel);
        meanwhile(kernel);
        hostile.goes_on();
    })
}
