//! Which methods of which interfaces were reached, and how.

use std::fmt;

use super::schema::Interface;

/// What came of the calls of one method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it was called.
    pub called: u64,
    /// How often with arguments that are wrong on purpose.
    pub hostile: u64,
    /// How often it did what it is for.
    pub answered: u64,
    /// How often it refused, with a reason.
    pub refused: u64,
    /// How often the call itself failed.
    pub failed: u64,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The method did what it is for.
    Answered,
    /// It said why it does not.
    Refused,
    /// The call failed.
    Failed,
}

/// One count for each method of each interface, in their order.
#[derive(Debug, Clone, Default)]
pub struct Coverage(Vec<Vec<Count>>);

impl Coverage {
    /// Of nothing yet.
    #[must_use]
    pub fn of(interfaces: &[Interface]) -> Self {
        Self(interfaces.iter().map(|interface| vec![Count::default(); interface.methods.len()]).collect())
    }

    fn change(&mut self, (interface, method): (usize, usize), change: impl FnOnce(&mut Count)) {
        let count = self.0.get_mut(interface).and_then(|methods| methods.get_mut(method));
        if let Some(count) = count {
            change(count);
        }
    }

    /// Notes a call.
    pub fn called(&mut self, method: (usize, usize), hostile: bool) {
        self.change(method, |count| {
            count.called += 1;
            count.hostile += u64::from(hostile);
        });
    }

    /// Notes how one ended.
    pub fn ended(&mut self, method: (usize, usize), outcome: Outcome) {
        self.change(method, |count| match outcome {
            Outcome::Answered => count.answered += 1,
            Outcome::Refused => count.refused += 1,
            Outcome::Failed => count.failed += 1,
        });
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Self) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (all, new) in self.0.iter_mut().flatten().zip(other.0.into_iter().flatten()) {
            all.called += new.called;
            all.hostile += new.hostile;
            all.answered += new.answered;
            all.refused += new.refused;
            all.failed += new.failed;
        }
    }

    /// What came of one method.
    #[must_use]
    pub fn count(&self, (interface, method): (usize, usize)) -> Count {
        self.0.get(interface).and_then(|methods| methods.get(method)).copied().unwrap_or_default()
    }

    /// Every method by its names, with what came of it.
    #[must_use]
    pub fn table(&self, interfaces: &[Interface]) -> Table {
        let mut rows = Vec::new();
        for (interface, counts) in interfaces.iter().zip(&self.0) {
            for (method, count) in interface.methods.iter().zip(counts) {
                let name = format!("{}.{}", interface.name, method.name);
                rows.push(Row { name, can_refuse: method.can_refuse(), count: *count });
            }
        }
        Table(rows)
    }
}

/// One method of one interface.
#[derive(Debug, Clone)]
pub struct Row {
    /// `interface.method`.
    pub name: String,
    /// Whether its results may say that it refuses.
    pub can_refuse: bool,
    /// What came of it.
    pub count: Count,
}

/// Coverage to be read.
#[derive(Debug, Clone, Default)]
pub struct Table(pub Vec<Row>);

impl Table {
    /// What was never reached in some way, in words. `never_refuse` are methods that find nothing to refuse.
    #[must_use]
    pub fn gaps(&self, never_refuse: &[&str], never_answer: &[&str]) -> Vec<String> {
        let mut gaps = Vec::new();
        for Row { name, can_refuse, count } in &self.0 {
            let refuses = *can_refuse && !never_refuse.contains(&name.as_str());
            let answers = !never_answer.contains(&name.as_str());
            for (reached, how) in [
                (count.called > 0, "called"),
                (count.hostile > 0, "called with wrong arguments"),
                (count.answered > 0 || !answers, "answered"),
                (count.refused > 0 || !refuses, "refused"),
            ] {
                if !reached {
                    gaps.push(format!("{name} was never {how}"));
                }
            }
        }
        gaps
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<32} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "interface.method", "calls", "hostile", "answered", "refused", "failed"
        )?;
        for Row { name, count, .. } in &self.0 {
            writeln!(
                f,
                "{name:<32} {:>10} {:>10} {:>10} {:>10} {:>10}",
                count.called, count.hostile, count.answered, count.refused, count.failed
            )?;
        }
        Ok(())
    }
}
