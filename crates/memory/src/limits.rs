//! What this machine and this process may use, and whether a planned segment fits.
//!
//! The kernel answers a segment that is too large not with an error but by killing the process at
//! some later touch, so the limits are read and compared before anything is mapped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit};

mod cgroup;

pub use cgroup::CgroupLimit;

/// Where the system's files are; tests point it at files of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPaths {
    /// Usually `/proc`.
    pub proc: PathBuf,
    /// Put before every mount point that `/proc/self/mountinfo` names; empty on a real system.
    pub mounts_prefix: PathBuf,
}

impl Default for LimitPaths {
    fn default() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            mounts_prefix: PathBuf::new(),
        }
    }
}

impl LimitPaths {
    fn own(&self, name: &str) -> PathBuf {
        self.proc.join("self").join(name)
    }
}

/// Whether the pages of a segment will be locked in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// They will, so the limit for locked memory counts.
    Locked,
    /// They will not.
    Pageable,
}

/// A soft and a hard limit; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftHard {
    /// What applies now.
    pub soft: Option<u64>,
    /// How far the process itself may raise it.
    pub hard: Option<u64>,
}

/// The limits found, and how much of each is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `MemAvailable` of the machine, bytes.
    pub available_bytes: u64,
    /// The control group with the least room, if any has a limit.
    pub cgroup: Option<CgroupLimit>,
    /// Bytes that fit now: the least of the above.
    pub room_bytes: u64,
    /// Limit for locked memory, bytes; `None` also for a process that is exempt from it.
    pub locked_bytes: SoftHard,
    /// Bytes locked now.
    pub locked_bytes_used: u64,
    /// Limit for open files.
    pub files: SoftHard,
    /// Files open now.
    pub files_used: u64,
}

/// Which limit a planned segment does not fit, with what is needed to get past it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The memory limit of a control group.
    #[error(
        "segment of {wanted} bytes does not fit the memory limit {}: limit {limit}, in use {used}; \
         raise it there (container memory limit, MemoryMax= of the unit) or use a smaller segment",
        file.display()
    )]
    Cgroup {
        /// The file that holds the limit.
        file: PathBuf,
        /// Its value in bytes.
        limit: u64,
        /// Bytes in use that cannot be given up.
        used: u64,
        /// Bytes of the segment.
        wanted: u64,
    },
    /// The machine's memory.
    #[error(
        "segment of {wanted} bytes does not fit the machine: {available} bytes are available \
         (MemAvailable); free memory or use a smaller segment"
    )]
    Machine {
        /// Bytes available.
        available: u64,
        /// Bytes of the segment.
        wanted: u64,
    },
    /// The limit for locked memory.
    #[error(
        "segment of {wanted} bytes cannot be locked: limit {limit} (RLIMIT_MEMLOCK), locked {used}; \
         raise it (ulimit -l, LimitMEMLOCK= of the unit) or grant CAP_IPC_LOCK"
    )]
    Locked {
        /// Soft limit in bytes.
        limit: u64,
        /// Bytes locked now.
        used: u64,
        /// Bytes of the segment.
        wanted: u64,
    },
    /// The limit for open files.
    #[error(
        "{wanted} more open files do not fit: limit {limit} (RLIMIT_NOFILE), open {used}; \
         raise it (ulimit -n, LimitNOFILE= of the unit)"
    )]
    Files {
        /// Soft limit.
        limit: u64,
        /// Files open now.
        used: u64,
        /// Files needed on top.
        wanted: u64,
    },
    /// A file of the system that must be there could not be understood.
    #[error("cannot read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LimitError {
    fn unreadable(file: &Path, source: io::Error) -> Self {
        Self::Unreadable {
            file: file.to_path_buf(),
            source,
        }
    }

    fn malformed(file: &Path) -> Self {
        Self::unreadable(file, io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// Checks a planned segment, and the files its node will open, against all limits.
///
/// # Errors
/// The first limit that does not hold: control group, machine, locked memory, open files.
pub fn check_segment(
    paths: &LimitPaths,
    wanted: u64,
    locking: Locking,
    files_needed: u64,
) -> Result<Report, LimitError> {
    let report = read(paths)?;
    report.check(wanted, locking, files_needed)?;
    Ok(report)
}

/// Reads all limits.
///
/// # Errors
/// When a file that every system has cannot be read. Missing control groups are no error.
pub fn read(paths: &LimitPaths) -> Result<Report, LimitError> {
    let meminfo = paths.proc.join("meminfo");
    let available_bytes = kilobytes(&read_text(&meminfo)?, "MemAvailable:")
        .ok_or_else(|| LimitError::malformed(&meminfo))?;
    let cgroup = cgroup::tightest(paths);
    let room = cgroup.as_ref().map_or(u64::MAX, CgroupLimit::room);
    let status = read_text(&paths.own("status"))?;
    let mut locked_bytes = limit(paths, "Max locked memory")?;
    if may_lock_without_limit(&status) {
        locked_bytes = SoftHard {
            soft: None,
            hard: None,
        };
    }
    let open = paths.own("fd");
    let entries = fs::read_dir(&open).map_err(|error| LimitError::unreadable(&open, error))?;
    Ok(Report {
        available_bytes,
        cgroup,
        room_bytes: available_bytes.min(room),
        locked_bytes,
        locked_bytes_used: kilobytes(&status, "VmLck:").unwrap_or(0),
        files: limit(paths, "Max open files")?,
        files_used: entries.count() as u64,
    })
}

impl Report {
    /// Checks a planned segment against these limits.
    ///
    /// # Errors
    /// The first limit that does not hold: control group, machine, locked memory, open files.
    pub fn check(&self, wanted: u64, locking: Locking, files: u64) -> Result<(), LimitError> {
        if let Some(group) = self.cgroup.as_ref().filter(|group| wanted > group.room()) {
            let file = group.file.clone();
            return Err(LimitError::Cgroup {
                file,
                limit: group.limit,
                used: group.used,
                wanted,
            });
        }
        if wanted > self.available_bytes {
            return Err(LimitError::Machine {
                available: self.available_bytes,
                wanted,
            });
        }
        let used = self.locked_bytes_used;
        match self.locked_bytes.soft {
            Some(limit) if locking == Locking::Locked && exceeds(used, wanted, limit) => {
                return Err(LimitError::Locked {
                    limit,
                    used,
                    wanted,
                });
            }
            _ => {}
        }
        match self.files.soft {
            Some(limit) if exceeds(self.files_used, files, limit) => Err(LimitError::Files {
                limit,
                used: self.files_used,
                wanted: files,
            }),
            _ => Ok(()),
        }
    }
}

/// Raises the limit of open files as far as the process may, and returns what applies then.
///
/// # Errors
/// When the system refuses although the hard limit allows it.
pub fn raise_open_files() -> io::Result<SoftHard> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if before.current != before.maximum {
        rustix::process::setrlimit(Resource::Nofile, wanted)?;
    }
    Ok(SoftHard {
        soft: wanted.current,
        hard: wanted.maximum,
    })
}

/// Bytes of memory that this process holds, those of populated segments included.
///
/// # Errors
/// When the system's file cannot be read.
pub fn resident_bytes(paths: &LimitPaths) -> Result<u64, LimitError> {
    let file = paths.own("status");
    kilobytes(&read_text(&file)?, "VmRSS:").ok_or_else(|| LimitError::malformed(&file))
}

fn exceeds(used: u64, wanted: u64, limit: u64) -> bool {
    wanted > 0 && used.checked_add(wanted).is_none_or(|sum| sum > limit)
}

fn read_text(file: &Path) -> Result<String, LimitError> {
    fs::read_to_string(file).map_err(|error| LimitError::unreadable(file, error))
}

/// The value of a line such as `VmRSS:     1234 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Whether the process has CAP_IPC_LOCK (bit 14), which lifts the limit for locked memory.
fn may_lock_without_limit(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> 14 & 1 == 1)
}

/// A line such as `Max open files    1024    4096    files` of the process's limits.
fn limit(paths: &LimitPaths, name: &str) -> Result<SoftHard, LimitError> {
    let file = paths.own("limits");
    let text = read_text(&file)?;
    let parse = |field: &str| match field {
        "unlimited" => Some(None),
        number => number.parse::<u64>().ok().map(Some),
    };
    let mut fields = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .into_iter()
        .flat_map(str::split_whitespace)
        .map(parse);
    match (fields.next().flatten(), fields.next().flatten()) {
        (Some(soft), Some(hard)) => Ok(SoftHard { soft, hard }),
        _ => Err(LimitError::malformed(&file)),
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod limits_test;
