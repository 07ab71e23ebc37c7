//! What callers ask for, and what the operator allows: flows.

use std::net::{Ipv4Addr, SocketAddrV4};

use bulkhead_client::{Error, ErrorCode};
use bulkhead_module::{manifest, refuse};
use bulkhead_nic::{
    pattern::Pattern,
    rate::{RATE_MAX, Rate, Unit},
};

use crate::layout::FLOWS;

/// What may be done with a flow: bits that the gates look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// It sends to its remote, answers that, and hears it.
    Both = 1 | 2 | 4,
    /// It hears whoever it may, and answers those.
    Listen = 2 | 4,
}

/// `--allow LOCAL`, `LOCAL~REMOTE`, with `@RATE` behind it: flows that callers may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    local: Pattern,
    remote: Pattern,
    rate: Option<Rate>,
}

/// A flow that a caller may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) local: SocketAddrV4,
    pub(crate) remote: Option<SocketAddrV4>,
    pub(crate) peers: Pattern,
    pub(crate) rate: Option<Rate>,
    pub(crate) rights: Rights,
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
        None => (addresses.parse(), Ok(Pattern::ALL)),
        Some((local, remote)) => (local.parse(), remote.parse()),
    };
    Ok(Rule { local: local.map_err(|_| wrong())?, remote: remote.map_err(|_| wrong())?, rate })
}

/// The flows that a caller asks for: `udp:LOCAL~REMOTE` or `listen:LOCAL`, with `@RATE` behind it, and commas between.
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

fn one(word: &str, rules: &[Rule]) -> Result<Asked, Error> {
    let wrong = || {
        refuse(format!(
            "{word:?} is no flow: udp:LOCAL~REMOTE or listen:LOCAL is, each ADDRESS:PORT, with @RATE behind it, datagrams a \
             second or bytes such as 64MiB"
        ))
    };
    let (kind, rest) = word.split_once(':').ok_or_else(wrong)?;
    let (addresses, rate) = rated(rest).ok_or_else(wrong)?;
    let (local, remote) = match (kind, addresses.split_once('~')) {
        ("udp", Some((local, remote))) => (local, Some(remote)),
        ("listen", None) => (addresses, None),
        _ => return Err(wrong()),
    };
    let local = address(local).ok_or_else(wrong)?;
    let remote = remote.map(|remote| address(remote).ok_or_else(wrong)).transpose()?;
    let allows = |rule: &&Rule| rule.local.has(local) && remote.is_none_or(|remote| rule.remote.has(remote));
    let rule = rules.iter().find(allows).ok_or_else(|| {
        Error::new(ErrorCode::NotPermitted, format!("{word:?} is not allowed"))
            .remedy("have the operator name it: `--allow LOCAL~REMOTE` of `host` in the module's manifest")
    })?;
    let rate = match (rate, rule.rate) {
        (None, most) => most,
        (Some(asked), Some(most)) if asked.unit != most.unit || asked.count > most.count => {
            return Err(Error::new(
                ErrorCode::NotPermitted,
                format!("{word:?}: {most:?} is the most that the operator allows, in what that counts"),
            ));
        }
        (asked, _) => asked,
    };
    let rights = if remote.is_some() { Rights::Both } else { Rights::Listen };
    Ok(Asked { local, remote, peers: rule.remote, rate, rights })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Rule> {
        ["127.0.0.1:7000-7099~127.0.0.0/8:*@1000", "127.0.0.1:8000", "10.0.0.1:9000~10.0.0.2:9000"]
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
        assert!(!flows[1].peers.has("10.0.0.1:1".parse().unwrap()) && flows[2].peers == Pattern::ALL);
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
