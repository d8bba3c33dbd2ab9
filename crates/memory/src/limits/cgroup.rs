//! Memory limits of the control groups the process is in, versions 1 and 2.
//!
//! Every group from the process's own up to the root of the mount counts, since a limit anywhere on
//! the way binds. Inside a container the group's path may name directories of the host that the
//! container does not see; then the mount itself is the group.

use std::fs;
use std::path::{Path, PathBuf};

use super::LimitPaths;

/// Values from here on mean "no limit" in version 1, which has no word for it.
const UNLIMITED_V1: u64 = 1 << 62;

/// The limit of one control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// The file that holds the limit.
    pub file: PathBuf,
    /// Its value in bytes.
    pub limit: u64,
    /// Bytes in use, without file cache that the kernel drops when it needs room.
    pub used: u64,
}

impl CgroupLimit {
    /// Bytes that fit under the limit now.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

struct Version {
    /// Type of its mounts.
    mount_type: &'static str,
    /// Limit files, each of which binds.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Line of `memory.stat` with cache that can be dropped.
    cache: &'static str,
}

const V1: Version = Version {
    mount_type: "cgroup",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

/// Above `memory.high` a group is slowed down until it stands still, so that binds as well.
const V2: Version = Version {
    mount_type: "cgroup2",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cache: "inactive_file",
};

/// The limit that leaves the least room, if there is any.
pub(super) fn tightest(paths: &LimitPaths) -> Option<CgroupLimit> {
    // A system without control groups has no such files, and then there is no limit to find.
    let groups = fs::read_to_string(paths.own("cgroup")).ok()?;
    let mounts = fs::read_to_string(paths.own("mountinfo")).ok()?;
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let version = match controllers {
            "" => &V2,
            list if list.split(',').any(|name| name == "memory") => &V1,
            _ => continue,
        };
        for mount in mounts
            .lines()
            .filter_map(|line| Mount::parse(line, version))
        {
            let top = prefixed(&paths.mounts_prefix, &mount.point);
            for folder in folders(&top, &mount.root, group) {
                found.extend(limits_of(&folder, version));
            }
        }
    }
    found.into_iter().min_by_key(CgroupLimit::room)
}

/// The folders of a group and of its ancestors, as far as this mount shows them.
fn folders(top: &Path, root: &str, group: &str) -> Vec<PathBuf> {
    let below = Path::new(group).strip_prefix(root).ok();
    // A path that leads out of the mount ("/../..") belongs to a namespace this process is not in.
    let below = below.filter(|below| {
        below
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)))
    });
    let own = below.map_or_else(|| top.to_path_buf(), |below| top.join(below));
    own.ancestors()
        .take_while(|folder| folder.starts_with(top))
        .map(Path::to_path_buf)
        .collect()
}

fn limits_of(folder: &Path, version: &Version) -> Vec<CgroupLimit> {
    let number = |name: &str| {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == version.cache).then(|| value.trim().parse::<u64>().ok())?
    });
    let used = number(version.usage)
        .unwrap_or(0)
        .saturating_sub(cache.unwrap_or(0));
    let limit_of = |name: &&str| {
        let limit = number(name).filter(|limit| *limit < UNLIMITED_V1)?;
        Some(CgroupLimit {
            file: folder.join(name),
            limit,
            used,
        })
    };
    version.limits.iter().filter_map(limit_of).collect()
}

/// One line of `mountinfo` that shows control groups with a memory limit.
struct Mount {
    /// The group that the mount shows at its point.
    root: String,
    point: String,
}

impl Mount {
    fn parse(line: &str, version: &Version) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        let has_memory = kind == "cgroup2" || options.split(',').any(|name| name == "memory");
        (kind == version.mount_type && has_memory).then(|| Self {
            root: root.to_owned(),
            point: point.to_owned(),
        })
    }
}

fn prefixed(prefix: &Path, point: &str) -> PathBuf {
    if prefix.as_os_str().is_empty() {
        return PathBuf::from(point);
    }
    prefix.join(point.trim_start_matches('/'))
}
