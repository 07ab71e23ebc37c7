//! What can bound the executors of isolated sessions on the host, beside what they give up themselves: users, cgroups.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Check, State};

/// What a kernel of this user could have.
pub(super) fn checks() -> [Check; 2] {
    [user(), cgroup()]
}

fn user() -> Check {
    const NAME: &str = "isolated: users";
    if rustix::process::geteuid().is_root() {
        let detail = "`serve --executor-uids FIRST-LAST` runs each executor as a user of its own".to_owned();
        return Check { name: NAME, state: State::Found, detail, remedy: "" };
    }
    Check {
        name: NAME,
        state: State::Absent,
        detail: "executors are this user, kept from its files by the walls above: only root starts others"
            .to_owned(),
        remedy: "`bulkhead serve --executor-uids 70000-70015` as root, with users that nobody is",
    }
}

fn cgroup() -> Check {
    const NAME: &str = "isolated: cgroups";
    let found = own_cgroup().and_then(|own| can_bound(&own));
    match found {
        Ok(own) => Check {
            name: NAME,
            state: State::Found,
            detail: format!(
                "`serve --executor-cgroup DIR` bounds each executor's memory and threads; make DIR below {}, and enable both there: \
                 `echo +memory +pids > DIR/cgroup.subtree_control`",
                own.display()
            ),
            remedy: "",
        },
        Err(why) => Check {
            name: NAME,
            state: State::Absent,
            detail: format!("nothing but --executor-memory bounds executors: {why}"),
            remedy: "have a cgroup (version 2) delegated, such as by systemd's Delegate=memory pids, and name one in it",
        },
    }
}

/// Where this process's cgroup is.
fn own_cgroup() -> Result<PathBuf, String> {
    let told =
        fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
    let path = told.lines().find_map(|line| line.strip_prefix("0::/"));
    let path = path.ok_or("there is no cgroup of version 2")?;
    // Where the mount is a part of the hierarchy, the path leads nowhere: then its root is what there is.
    let (root, own) = (Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup").join(path));
    Ok(if own.is_dir() { own } else { root.to_owned() })
}

/// The cgroup, if it has the controllers and others can be made in it.
fn can_bound(own: &Path) -> Result<PathBuf, String> {
    let controllers = own.join("cgroup.controllers");
    let has =
        fs::read_to_string(&controllers).map_err(|error| format!("{}: {error}", controllers.display()))?;
    if let Some(missing) =
        ["memory", "pids"].iter().find(|name| !has.split_whitespace().any(|one| one == **name))
    {
        return Err(format!("{} has no controller {missing}", own.display()));
    }
    match rustix::fs::access(own, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(own.to_owned()),
        Err(error) => Err(format!("no cgroup can be made in {}: {error}", own.display())),
    }
}
