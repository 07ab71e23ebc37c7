//! What callers ask for, and what the operator allows: flows.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
};

use bulkhead_client::{Error, ErrorCode};
use bulkhead_module::{manifest, refuse};
use bulkhead_nic::{
    pattern::Pattern,
    rate::{RATE_MAX, Rate, Unit},
    region::Part,
};

use crate::layout::{FLOWS, REGION_BYTES, SIGNAL_BYTES};

/// Rules that are told to who was refused.
const RULES_TOLD: usize = 8;
/// Whom flows may send to and hear where the operator does not say.
const REMOTES: &str = "127.0.0.0/8:7000-7099";

/// What may be done with a flow: bits that the gates look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// It sends to its remote, answers that, and hears it.
    Both = 1 | 2 | 4,
    /// It hears whoever it may, and answers those.
    Listen = 2 | 4,
    /// Its remote writes what it sends into its region.
    Put = 8,
    /// What its remote sends is written into the region: gates do nothing with it.
    Window = 16,
}

/// `--allow LOCAL~REMOTE`, with `@RATE` behind it: flows that callers may have. Without `~REMOTE` those are [`REMOTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    local: Pattern,
    remote: Pattern,
    rate: Option<Rate>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.local, self.remote)?;
        self.rate.map_or(Ok(()), |rate| write!(f, " with {rate}"))
    }
}

/// What callers may have, for who was refused.
fn allowed(rules: &[Rule]) -> String {
    let told: Vec<_> = rules.iter().take(RULES_TOLD).map(Rule::to_string).collect();
    match rules.len().saturating_sub(RULES_TOLD) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

/// A flow that a caller may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) local: SocketAddrV4,
    pub(crate) remote: Option<SocketAddrV4>,
    pub(crate) peers: Pattern,
    pub(crate) rate: Option<Rate>,
    pub(crate) rights: Rights,
    /// Of a window: the part of the region that its remote may write, and the signals of that.
    pub(crate) within: Part,
}

/// `1000`, datagrams a second; `4MiB`, bytes a second.
fn rate(text: &str) -> Option<Rate> {
    let unit = if text.ends_with(|last: char| last.is_ascii_digit()) { Unit::Packets } else { Unit::Bytes };
    let count = manifest::size(text)?;
    (1..=RATE_MAX).contains(&count).then_some(Rate { count, unit })
}

/// What stands before `@`, and the rate behind it.
fn rated(text: &str) -> Option<(&str, Option<Rate>)> {
    match text.split_once('@') {
        None => Some((text, None)),
        Some((text, behind)) => Some((text, Some(rate(behind)?))),
    }
}

/// What `--allow` says.
pub(crate) fn rule(text: &str) -> Result<Rule, Error> {
    let wrong = || {
        refuse(format!(
            "--allow {text}: LOCAL or LOCAL~REMOTE belongs here, each ADDRESS[/BITS]:PORTS, and @RATE behind it, such as \
             127.0.0.1:7000-7099~10.0.0.0/8:*@64MiB"
        ))
    };
    let (addresses, rate) = rated(text).ok_or_else(wrong)?;
    let (local, remote) = match addresses.split_once('~') {
        None => (addresses.parse(), REMOTES.parse()),
        Some((local, remote)) => (local.parse(), remote.parse()),
    };
    Ok(Rule { local: local.map_err(|_| wrong())?, remote: remote.map_err(|_| wrong())?, rate })
}

/// The flows that a caller asks for: `udp:LOCAL~REMOTE`, `listen:LOCAL`, `put:LOCAL~REMOTE` or `window:LOCAL~REMOTE[+FIRST+BYTES]`,
/// with `@RATE` behind it, and commas between.
pub(crate) fn asked(words: &str, rules: &[Rule]) -> Result<Vec<Asked>, Error> {
    let flows: Vec<_> = words.split(',').map(|word| one(word.trim(), rules)).collect::<Result<_, _>>()?;
    if flows.len() > FLOWS {
        return Err(refuse(format!("{} flows are more than the {FLOWS} of an instance", flows.len())));
    }
    Ok(flows)
}

/// An address and port of one machine, or a port of this one.
fn address(text: &str) -> Option<SocketAddrV4> {
    let address = match text.parse() {
        Ok(port) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        Err(_) => text.parse().ok()?,
    };
    let ip = address.ip();
    (address.port() != 0 && !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast())
        .then_some(address)
}

/// A part of a region, if it has any signals: each is of the part that has its first byte, so that parts share none.
fn part(first: u64, bytes: u64) -> Option<Part> {
    let end = first.checked_add(bytes).filter(|end| *end <= REGION_BYTES)?;
    let signal = |at: u64| u32::try_from(at.div_ceil(SIGNAL_BYTES)).ok();
    let signals = signal(first)?..signal(end)?;
    (!signals.is_empty()).then_some(Part { bytes: first..end, signals })
}

/// What stands before `+FIRST+BYTES`, and the part of a region; all of it where nothing is said.
fn parted(text: &str) -> Option<(&str, Part)> {
    let Some((text, within)) = text.split_once('+') else { return Some((text, part(0, REGION_BYTES)?)) };
    let (first, bytes) = within.split_once('+')?;
    Some((text, part(manifest::size(first)?, manifest::size(bytes)?)?))
}

/// A flow as it is written, before anybody is asked whether it is allowed.
fn written(word: &str) -> Option<Asked> {
    let (kind, rest) = word.split_once(':')?;
    let (rest, rate) = rated(rest)?;
    let nothing = Part { bytes: 0..0, signals: 0..0 };
    let (rights, (local, remote), within) = match (kind, rest.split_once('~')) {
        ("listen", None) => (Rights::Listen, (rest, None), nothing),
        ("udp", Some((local, remote))) => (Rights::Both, (local, Some(remote)), nothing),
        ("put", Some((local, remote))) => (Rights::Put, (local, Some(remote)), nothing),
        ("window", Some((local, remote))) => {
            let (remote, within) = parted(remote)?;
            (Rights::Window, (local, Some(remote)), within)
        }
        _ => return None,
    };
    let remote = match remote {
        Some(remote) => Some(address(remote)?),
        None => None,
    };
    Some(Asked { local: address(local)?, remote, peers: Pattern::ALL, rate, rights, within })
}

fn one(word: &str, rules: &[Rule]) -> Result<Asked, Error> {
    let flow = written(word).ok_or_else(|| {
        refuse(format!(
            "{word:?} is no flow: udp:LOCAL~REMOTE, listen:LOCAL, put:LOCAL~REMOTE and window:LOCAL~REMOTE[+FIRST+BYTES] are, \
             each ADDRESS:PORT, with @RATE behind it, datagrams a second or bytes such as 64MiB; a region has {REGION_BYTES} bytes, \
             and a part of it has a multiple of {SIGNAL_BYTES} in it, since that is where signals are"
        ))
    })?;
    let allows =
        |rule: &&Rule| rule.local.has(flow.local) && flow.remote.is_none_or(|remote| rule.remote.has(remote));
    let rule = rules.iter().find(allows).ok_or_else(|| {
        let rules = allowed(rules);
        let message = format!("{word:?} is not allowed: LOCAL~REMOTE are {rules}");
        Error::new(ErrorCode::NotPermitted, message)
            .remedy("ask for such a flow, or have the operator name it: `--allow LOCAL~REMOTE` of `host` in the module's manifest")
    })?;
    let rate = match (flow.rate, rule.rate) {
        (None, most) => most,
        (Some(asked), Some(most)) if asked.unit != most.unit || asked.count > most.count => {
            return Err(Error::new(
                ErrorCode::NotPermitted,
                format!(
                    "{word:?}: {most} is the most that the operator allows; say no more, in what that counts"
                ),
            ));
        }
        (asked, _) => asked,
    };
    Ok(Asked { peers: rule.remote, rate, ..flow })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Rule> {
        [
            "127.0.0.1:7000-7099~127.0.0.0/8:*@1000",
            "127.0.0.1:8000~0.0.0.0/0:*",
            "10.0.0.1:9000~10.0.0.2:9000",
        ]
        .map(|text| rule(text).unwrap())
        .to_vec()
    }

    #[test]
    fn flows_are_what_a_rule_allows() {
        let flows =
            asked("udp:7000~127.0.0.1:80, listen:127.0.0.1:7001@10,listen:8000@4KiB", &rules()).unwrap();
        let packets = |count| Some(Rate { count, unit: Unit::Packets });
        let local: Vec<_> = flows.iter().map(|flow| flow.local.to_string()).collect();
        assert_eq!(local, ["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:8000"]);
        assert_eq!(flows[0].remote.map(|remote| remote.to_string()).as_deref(), Some("127.0.0.1:80"));
        let rates: Vec<_> = flows.iter().map(|flow| flow.rate).collect();
        assert_eq!(rates, [packets(1000), packets(10), Some(Rate { count: 4096, unit: Unit::Bytes })]);
        assert_eq!([flows[0].rights, flows[1].rights], [Rights::Both, Rights::Listen]);
        assert!(!flows[1].peers.has("10.0.0.1:1".parse().unwrap()));
        assert!(flows[2].peers.has("10.0.0.1:1".parse().unwrap()));
    }

    #[test]
    fn who_says_nothing_of_remotes_allows_a_few_ports_of_this_machine() {
        let rules = [rule("127.0.0.1:7000-7099").unwrap()];
        for words in ["udp:7000~127.0.0.1:7099", "udp:7000~7001", "put:7000~127.1.2.3:7000", "listen:7000"] {
            assert!(asked(words, &rules).is_ok(), "{words}");
        }
        for words in ["udp:7000~127.0.0.1:7100", "udp:7000~127.0.0.53:53", "udp:7000~10.0.0.1:7000"] {
            assert!(asked(words, &rules).is_err(), "{words}");
        }
        let listens = asked("listen:7000", &rules).unwrap();
        for (peer, heard) in [("127.0.0.2:7050", true), ("127.0.0.2:50000", false), ("10.0.0.1:7050", false)]
        {
            assert_eq!(listens[0].peers.has(peer.parse().unwrap()), heard, "{peer}");
        }
    }

    #[test]
    fn windows_are_parts_of_the_region() {
        for (words, bytes, signals) in [
            ("window:8000~127.0.0.1:9", 0..65536, 0..16),
            ("window:8000~127.0.0.1:9+0+64", 0..64, 0..1),
            ("window:8000~127.0.0.1:9+64+4096", 64..4160, 1..2),
            ("window:8000~127.0.0.1:9+0+4097", 0..4097, 0..2),
            ("window:8000~127.0.0.1:9+4096+4096", 4096..8192, 1..2),
            ("window:8000~127.0.0.1:9+32KiB+32KiB@5", 32768..65536, 8..16),
        ] {
            let flows = asked(words, &rules()).unwrap();
            assert_eq!((flows[0].within.clone(), flows[0].rights), (Part { bytes, signals }, Rights::Window));
        }
        assert_eq!(asked("put:8000~127.0.0.1:9", &rules()).unwrap()[0].rights, Rights::Put);
        for part in [
            "+",
            "+0",
            "+0+",
            "+0+0",
            "+1+64KiB",
            "+64KiB+1",
            "+18446744073709551615+1",
            "+0+1+1",
            "+64+64",
            "+4097+4095",
        ] {
            assert!(asked(&format!("window:8000~127.0.0.1:9{part}"), &rules()).is_err(), "{part}");
        }
        assert!(
            asked("put:8000~127.0.0.1:9+0+64", &rules()).is_err() && asked("window:8000", &rules()).is_err()
        );
    }

    #[test]
    fn what_no_rule_allows_is_refused() {
        for words in [
            "",
            "udp",
            "udp:7000",
            "udp:7000~",
            "udp:7000~80~81",
            "tcp:7000~80",
            "listen:7000~80",
            "listen:",
            "listen:0",
            "listen:65536",
            "listen:7100",
            "listen:0.0.0.0:7000",
            "listen:127.0.0.2:7000",
            "listen:[::1]:7000",
            "udp:7000~10.0.0.1:80",
            "udp:7000~224.0.0.1:80",
            "udp:10.0.0.1:9000~10.0.0.3:9000",
            "listen:7000@1001",
            "listen:7000@1KiB",
            "listen:7000@0",
            "listen:7000@-1",
            "listen:7000@",
            "listen:7000,",
        ] {
            assert!(asked(words, &rules()).is_err(), "{words:?}");
        }
        let many = vec!["listen:8000"; FLOWS + 1].join(",");
        assert!(asked(&many, &rules()).unwrap_err().message.contains("17 flows"));
    }

    #[test]
    fn who_is_refused_is_told_what_is_allowed() {
        let told = |words: &str| asked(words, &rules()).unwrap_err().to_string();
        let refused = told("listen:7100");
        assert!(refused.contains("127.0.0.1/32:8000-8000~0.0.0.0/0:1-65535"), "{refused}");
        assert!(refused.contains("with 1000 datagrams a second"), "{refused}");
        assert!(told("listen:7000@1001").contains("1000 datagrams a second is the most"));
    }

    #[test]
    fn rules_are_patterns_and_rates() {
        for text in [
            "",
            "127.0.0.1",
            "127.0.0.1:1~",
            "~127.0.0.1:1",
            "127.0.0.1:1@",
            "127.0.0.1:1@x",
            "127.0.0.1:1@9999999TiB",
        ] {
            assert!(rule(text).is_err(), "{text:?}");
        }
    }
}
