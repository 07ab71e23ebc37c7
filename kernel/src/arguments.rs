//! What the kernel's program is told, as arguments: whoever starts it writes them, and it reads them.
//!
//! People do not write them: `bulkhead serve` has checked what it was given. Some are written as people write them there,
//! and are read here for both.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    ops::RangeInclusive,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::PathBuf,
};

use bulkhead_mm::{Amounts, Resource};
use bulkhead_schema::{contracts, limits::MODULE_NAME_BYTES_MAX};
use rustix::fs::MemfdFlags;

use crate::{
    Cells, Config, Counted, ExecutorSource, Limits, ProtectedModule, Quota, Relay, Tenant, Whose, log,
};

/// A configuration as arguments, and the descriptors that they name, which the program has to inherit. `told` is said once
/// clients can connect.
///
/// # Errors
/// Where the system gives no memory for the texts of gates, or executors come from elsewhere than a command.
pub fn write(config: &Config, told: &str) -> io::Result<(Vec<OsString>, Vec<OwnedFd>)> {
    let ExecutorSource::Command(executor) = &config.executor else {
        return Err(io::Error::other("executors of another program's come from a command"));
    };
    let mut list = List(Vec::new());
    let mut descriptors = Vec::new();
    list.put("contracts", contracts());
    list.put("directory", &config.runtime_directory);
    executor.iter().for_each(|word| list.put("executor", word));
    config.compiler.iter().for_each(|word| list.put("compiler", word));
    for (name, value) in &config.executor_environment {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        list.put("variable", variable);
    }
    for module in &config.modules {
        let text = std::fs::File::from(rustix::fs::memfd_create("gates", MemfdFlags::empty())?);
        (&text).write_all(module.gates.as_bytes())?;
        let ProtectedModule { name, bytes, host_bytes, .. } = module;
        list.put("module", format!("{name}:{bytes}:{host_bytes}:{}", text.as_raw_fd()));
        descriptors.push(text.into());
    }
    if config.relay == Relay::Always {
        list.put("relay", "always");
    }
    for Tenant { name, whose } in &config.tenants {
        list.put(
            "tenant",
            match whose {
                Whose::Uid(uid) => format!("{name}=uid:{uid}"),
                Whose::Cgroup(path) => format!("{name}=cgroup:{path}"),
            },
        );
    }
    list.limits(&config.limits);
    let Cells { cgroup, uids, memory_bytes, pinned_bytes } = &config.cells;
    cgroup.iter().for_each(|path| list.put("cgroup", path));
    uids.iter().for_each(|uids| list.put("uids", format!("{}-{}", uids.start(), uids.end())));
    list.put("executor-memory", memory_bytes.to_string());
    list.put("executor-pinned", pinned_bytes.to_string());
    list.put("told", told);
    Ok((list.0, descriptors))
}

/// Arguments, each a name and a value.
struct List(Vec<OsString>);

impl List {
    fn put(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.0.extend([name.into(), value.as_ref().to_owned()]);
    }

    fn limits(&mut self, limits: &Limits) {
        let Limits { session, total, principal, process, .. } = limits;
        for (name, amounts) in [("session", session), ("total", total)] {
            for resource in Resource::ALL {
                let most = amounts.get(resource);
                if most != Amounts::UNLIMITED.get(resource) {
                    self.put(name, format!("{}={most}", resource.key()));
                }
            }
        }
        for (name, quota) in [("principal", principal), ("process", process)] {
            for counted in Counted::ALL {
                self.put(name, format!("{}={}", counted.key(), quota.get(counted)));
            }
        }
        self.put("priority-ceiling", limits.priority_ceiling.to_string());
        limits.device_bytes.iter().for_each(|bytes| self.put("device-bytes", bytes.to_string()));
        self.put("swap-bytes", limits.swap_bytes.to_string());
        self.put("standby", limits.standby.to_string());
        self.put("warm", limits.warm.to_string());
    }
}

/// What [`write()`] has written.
///
/// # Errors
/// The argument that is no such, and why.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Config, String> {
    let mut reader = Reader::new();
    let mut arguments = arguments.into_iter();
    while let Some(name) = arguments.next() {
        let name = name.into_string().map_err(|name| format!("{} is no argument", name.display()))?;
        let value = arguments.next().ok_or_else(|| format!("`{name}` has no value"))?;
        reader.argument(&name, value).map_err(|wrong| format!("`{name}`: {wrong}"))?;
    }
    reader.end()
}

const OTHER_BUILD: &str = "`bulkhead` and `bulkhead-kernel` are of different builds: build both";

struct Reader {
    config: Config,
    executor: Vec<OsString>,
    agrees: bool,
}

impl Reader {
    fn new() -> Self {
        let config = Config {
            runtime_directory: PathBuf::new(),
            executor: ExecutorSource::Command(Vec::new()),
            executor_environment: Vec::new(),
            compiler: Vec::new(),
            modules: Vec::new(),
            relay: Relay::default(),
            tenants: Vec::new(),
            limits: Limits::default(),
            cells: Cells::default(),
            ready: None,
        };
        Self { config, executor: Vec::new(), agrees: false }
    }

    fn argument(&mut self, name: &str, value: OsString) -> Result<(), String> {
        let config = &mut self.config;
        // Names of files, and what other programs are told, are no text.
        match name {
            "directory" => config.runtime_directory = value.into(),
            "executor" => self.executor.push(value),
            "compiler" => config.compiler.push(value),
            "variable" => config.executor_environment.push(variable(value)?),
            "cgroup" => config.cells.cgroup = Some(value.into()),
            _ => {
                let value = value.to_str().ok_or("it is no text")?;
                return self.text(name, value);
            }
        }
        Ok(())
    }

    fn text(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Config { limits, cells, .. } = &mut self.config;
        match name {
            "contracts" if value == contracts() => self.agrees = true,
            "contracts" => return Err(OTHER_BUILD.to_owned()),
            "module" => self.config.modules.push(protected(value)?),
            "relay" => self.config.relay = Relay::Always,
            "tenant" => self.config.tenants.push(tenant(value)?),
            "session" => limits.session = with(limits.session, value)?,
            "total" => limits.total = with(limits.total, value)?,
            "principal" => limits.principal = counting(limits.principal, value)?,
            "process" => limits.process = counting(limits.process, value)?,
            "priority-ceiling" => limits.priority_ceiling = number(value)?,
            "device-bytes" => limits.device_bytes = Some(number(value)?),
            "swap-bytes" => limits.swap_bytes = number(value)?,
            "standby" => limits.standby = value == "true",
            "warm" => limits.warm = number(value)?,
            "uids" => cells.uids = Some(uids(value)?),
            "executor-memory" => cells.memory_bytes = number(value)?,
            "executor-pinned" => cells.pinned_bytes = number(value)?,
            "told" => {
                let told = value.to_owned();
                self.config.ready = Some(Box::new(move || log::say(&told)));
            }
            _ => return Err("there is no such argument".to_owned()),
        }
        Ok(())
    }

    fn end(self) -> Result<Config, String> {
        let Self { mut config, executor, agrees } = self;
        if !agrees {
            return Err(OTHER_BUILD.to_owned());
        }
        if executor.is_empty()
            || config.compiler.is_empty()
            || config.runtime_directory.as_os_str().is_empty()
        {
            return Err("`executor`, `compiler` and `directory` are missing".to_owned());
        }
        config.executor = ExecutorSource::Command(executor);
        Ok(config)
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is no such number"))
}

fn variable(text: OsString) -> Result<(OsString, OsString), String> {
    let bytes = text.into_vec();
    let at = bytes.iter().position(|byte| *byte == b'=').ok_or("a variable has a name, =, and a value")?;
    let part = |bytes: Option<&[u8]>| OsStr::from_bytes(bytes.unwrap_or_default()).to_owned();
    Ok((part(bytes.get(..at)), part(bytes.get(at + 1..))))
}

fn protected(text: &str) -> Result<ProtectedModule, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [name, bytes, host_bytes, descriptor] = parts[..] else {
        return Err("NAME:BYTES:HOST_BYTES:DESCRIPTOR belongs there".to_owned());
    };
    let descriptor: u32 = number(descriptor)?;
    let gates = std::fs::read_to_string(format!("/proc/self/fd/{descriptor}"));
    let gates = gates.map_err(|error| format!("its text: {error}"))?;
    Ok(ProtectedModule {
        name: name.to_owned(),
        gates,
        bytes: number(bytes)?,
        host_bytes: number(host_bytes)?,
    })
}

fn with(amounts: Amounts, text: &str) -> Result<Amounts, String> {
    let (resource, most) = limit(text)?;
    Ok(amounts.with(resource, most))
}

fn counting(quota: Quota, text: &str) -> Result<Quota, String> {
    let (counted, most) = counted(text)?;
    Ok(quota.with(counted, most))
}

/// Users, as FIRST-LAST.
///
/// # Errors
/// Where it is none, and what belongs there.
pub fn uids(text: &str) -> Result<RangeInclusive<u32>, String> {
    let parsed =
        text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match parsed {
        Some((first, last)) if 0 < first && first <= last && last < u32::MAX => Ok(first..=last),
        _ => {
            Err(format!("{text:?} are no users: FIRST-LAST belongs here, such as 70000-70015, and 0 is root"))
        }
    }
}

/// A limit of what is counted for principals.
///
/// # Errors
/// Where it is none, and what belongs there.
pub fn counted(text: &str) -> Result<(Counted, u64), String> {
    let (name, amount) = text.split_once('=').ok_or("a limit is a name, =, and an amount")?;
    let counted = Counted::of_key(name).ok_or_else(|| {
        let names: Vec<_> = Counted::ALL.into_iter().map(Counted::key).collect();
        format!("{name:?} is not counted: {} are", names.join(", "))
    })?;
    let amount = match counted {
        Counted::MessageBytes => size(amount)?,
        Counted::Connections
        | Counted::DescriptorConnections
        | Counted::Sessions
        | Counted::Waits
        | Counted::Compiles
        | Counted::GoneSessions
        | Counted::GivenUp
        | Counted::OfOthers => amount.parse().map_err(|_| "an amount is a number")?,
    };
    Ok((counted, amount))
}

/// A principal that the operator names.
///
/// # Errors
/// Where it is none, and what belongs there.
pub fn tenant(text: &str) -> Result<Tenant, String> {
    let parts = text.split_once('=').and_then(|(name, whose)| Some((name, whose.split_once(':')?)));
    let (name, whose) = parts.ok_or("NAME=uid:UID or NAME=cgroup:PATH belongs here")?;
    let whose = match whose {
        ("uid", uid) => Whose::Uid(uid.parse().map_err(|_| format!("{uid:?} is no uid"))?),
        ("cgroup", path) if path.starts_with('/') => Whose::Cgroup(path.to_owned()),
        ("cgroup", path) => {
            return Err(format!("{path:?} is no path of a cgroup, as /proc/PID/cgroup tells it"));
        }
        (other, _) => return Err(format!("{other:?} names nobody: uid and cgroup do")),
    };
    if name.is_empty()
        || name.len() > MODULE_NAME_BYTES_MAX
        || !name.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!("{name:?} is no name: printable ASCII is, at most {MODULE_NAME_BYTES_MAX}"));
    }
    Ok(Tenant { name: name.to_owned(), whose })
}

/// A limit of a column.
///
/// # Errors
/// Where it is none, and what belongs there.
pub fn limit(text: &str) -> Result<(Resource, u64), String> {
    let (name, amount) = text.split_once('=').ok_or("a limit is a column, =, and an amount")?;
    let resource = Resource::of_key(name).ok_or_else(|| {
        let names: Vec<_> = Resource::ALL.into_iter().map(Resource::key).collect();
        format!("{name:?} is no column: they are {}", names.join(", "))
    })?;
    let amount = if resource.is_bytes() {
        size(amount)?
    } else {
        amount.parse().map_err(|_| "an amount is a number")?
    };
    Ok((resource, amount))
}

/// A number of bytes, as people write it: with KiB, MiB, GiB or TiB behind it, or alone.
///
/// # Errors
/// Where it is none, and what belongs there.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(format!("{unit:?} is no unit: B, KiB, MiB, GiB and TiB are, right after a number")),
    };
    let number: u64 =
        number.parse().map_err(|_| "a size is a number and a unit, such as 768MiB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than can be counted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let limits = Limits {
            device_bytes: Some(3 << 30),
            swap_bytes: 7 << 20,
            standby: true,
            warm: 2,
            session: Amounts::UNLIMITED.with(Resource::Streams, 8),
            total: Amounts::UNLIMITED.with(Resource::HostBytes, 1 << 30),
            principal: Quota::PRINCIPAL.with(Counted::Sessions, 5),
            process: Quota::PROCESS.with(Counted::MessageBytes, 1 << 16),
            priority_ceiling: -3,
            ..Limits::default()
        };
        Config {
            runtime_directory: "/run/a place".into(),
            executor: ExecutorSource::Command(vec![
                "/bin/a".into(),
                "--cache".into(),
                OsString::from_vec(vec![0xff]),
            ]),
            executor_environment: vec![("PATH".into(), "/a=b".into())],
            compiler: vec!["/bin/c".into(), "compiler".into()],
            modules: vec![ProtectedModule {
                name: "log".into(),
                gates: "// gates\n".repeat(9000),
                bytes: 4 << 20,
                host_bytes: 2 << 20,
            }],
            relay: Relay::Always,
            tenants: vec![
                Tenant { name: "blue".into(), whose: Whose::Uid(7) },
                Tenant { name: "pods".into(), whose: Whose::Cgroup("/a:b=c".into()) },
            ],
            limits,
            cells: Cells {
                cgroup: Some("/sys/fs".into()),
                uids: Some(70_000..=70_003),
                memory_bytes: 1 << 30,
                pinned_bytes: 5,
            },
            ready: None,
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let config = config();
        let (mut arguments, texts) = write(&config, "it serves").unwrap();
        let read = read(arguments.clone()).unwrap();
        assert!(read.ready.is_some());
        assert_eq!(format!("{read:?}"), format!("{config:?}"));
        assert_eq!(read.executor_environment, config.executor_environment);
        assert_eq!((read.relay, format!("{:?}", read.cells)), (config.relay, format!("{:?}", config.cells)));
        // One of another build, what is missing, and what is no argument.
        for (from, to) in
            [("contracts", "told"), ("executor", "compiler"), ("directory", "told"), ("warm", "worm")]
        {
            let changed = arguments.iter().map(|word| if word == from { to.into() } else { word.clone() });
            assert!(super::read(changed.collect::<Vec<_>>()).is_err(), "{from}");
        }
        let mut other = arguments.clone();
        other[1] = "0".into();
        assert!(super::read(other).unwrap_err().contains("different builds"));
        assert!(super::read(arguments[..arguments.len() - 1].to_vec()).unwrap_err().contains("has no value"));
        // A number that no descriptor has.
        let word = arguments.iter().position(|word| word.to_string_lossy().starts_with("log:")).unwrap();
        arguments[word] = format!("log:1:0:{}", i32::MAX).into();
        assert!(super::read(arguments).unwrap_err().contains("its text"));
        drop(texts);
    }

    #[test]
    fn limits_name_a_column_and_an_amount() {
        assert_eq!(limit("streams=8"), Ok((Resource::Streams, 8)));
        assert_eq!(limit("host_bytes=1GiB"), Ok((Resource::HostBytes, 1 << 30)));
        for wrong in ["streams", "streams=", "streams=1KiB", "strems=8", "host_bytes=x", "=1"] {
            assert!(limit(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn principals_have_limits_and_names() {
        assert_eq!(counted("sessions=8"), Ok((Counted::Sessions, 8)));
        assert_eq!(counted("message_bytes=1MiB"), Ok((Counted::MessageBytes, 1 << 20)));
        for wrong in ["sessions", "sessions=", "sessions=1MiB", "streams=8"] {
            assert!(counted(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(tenant("blue=uid:7"), Ok(Tenant { name: "blue".into(), whose: Whose::Uid(7) }));
        assert!(tenant("pods=cgroup:/pods").is_ok());
        for wrong in ["blue", "=uid:7", "blue=uid:x", "blue=cgroup:pods", "blue=gid:7", "b\x1b=uid:7"] {
            assert!(tenant(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("768MiB"), Ok(768 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        for wrong in ["", "MiB", "12MB", "-1", "1.5GiB", "1 GiB", "99999999999999999999", "16777216TiB"] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
    }
}
