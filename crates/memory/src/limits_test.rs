use super::*;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A machine made of files: 8 GiB available, 64 MiB lockable, 100 files of which 3 are open.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            root: TempDir::new().unwrap(),
        };
        machine.write(
            "proc/meminfo",
            "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB\n",
        );
        machine.write(
            "proc/self/status",
            "Name:\tx\nVmLck:\t    1024 kB\nVmRSS:\t    2048 kB\nCapEff:\t0000000000000000\n",
        );
        machine.write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max open files            100                  4096                 files\n\
             Max locked memory         67108864             unlimited            bytes\n",
        );
        for number in 0..3 {
            machine.write(&format!("proc/self/fd/{number}"), "");
        }
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn paths(&self) -> LimitPaths {
        let root = self.root.path();
        LimitPaths {
            proc: root.join("proc"),
            mounts_prefix: root.to_path_buf(),
        }
    }

    fn check(&self, wanted: u64, locking: Locking, files: u64) -> Result<Report, LimitError> {
        check_segment(&self.paths(), wanted, locking, files)
    }

    fn group(&self, group: &str, mountinfo: &str) {
        self.write("proc/self/cgroup", group);
        self.write("proc/self/mountinfo", mountinfo);
    }
}

const MOUNT_V2: &str = "30 20 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
const MOUNT_V1: &str = "36 30 0:31 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
     37 30 0:32 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n";

#[test]
fn without_control_groups_the_machine_is_the_limit() {
    let machine = Machine::new();
    let report = machine.check(8 * GIB, Locking::Pageable, 97).unwrap();
    assert_eq!((report.room_bytes, report.cgroup), (8 * GIB, None));
    assert_eq!((report.files_used, report.locked_bytes_used), (3, MIB));
    let error = machine
        .check(8 * GIB + 1, Locking::Pageable, 0)
        .unwrap_err();
    let expected = 8 * GIB;
    assert!(matches!(error, LimitError::Machine { available, .. } if available == expected));
    assert!(error.to_string().contains("MemAvailable"), "{error}");
}

#[test]
fn locked_memory_counts_only_for_locked_segments() {
    let machine = Machine::new();
    machine.check(GIB, Locking::Pageable, 0).unwrap();
    machine.check(63 * MIB, Locking::Locked, 0).unwrap();
    let error = machine.check(63 * MIB + 1, Locking::Locked, 0).unwrap_err();
    assert!(
        matches!(
            error,
            LimitError::Locked {
                limit: 67_108_864,
                used: MIB,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("ulimit -l"), "{error}");
}

#[test]
fn a_process_that_may_lock_is_exempt() {
    let machine = Machine::new();
    machine.write(
        "proc/self/status",
        "VmRSS:\t 1 kB\nCapEff:\t0000000000004000\n",
    );
    machine.check(GIB, Locking::Locked, 0).unwrap();
}

#[test]
fn missing_open_files_are_named() {
    let machine = Machine::new();
    let error = machine.check(1, Locking::Pageable, 98).unwrap_err();
    assert!(
        matches!(
            error,
            LimitError::Files {
                limit: 100,
                used: 3,
                wanted: 98
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    machine.check(1, Locking::Pageable, u64::MAX).unwrap_err();
}

#[test]
fn the_tightest_ancestor_binds_in_version_2() {
    let machine = Machine::new();
    machine.group("0::/pods/a/engine\n", MOUNT_V2);
    let top = "sys/fs/cgroup";
    machine.write(&format!("{top}/pods/a/engine/memory.max"), "max\n");
    machine.write(&format!("{top}/pods/a/engine/memory.current"), "5\n");
    machine.write(
        &format!("{top}/pods/a/memory.max"),
        &format!("{}\n", 2 * GIB),
    );
    machine.write(&format!("{top}/pods/a/memory.current"), &format!("{GIB}\n"));
    let cache = 512 * MIB;
    machine.write(
        &format!("{top}/pods/a/memory.stat"),
        &format!("anon 7\nactive_file 9\ninactive_file {cache}\n"),
    );
    machine.write(&format!("{top}/pods/memory.max"), &format!("{}\n", 4 * GIB));
    let report = machine.check(1536 * MIB, Locking::Pageable, 0).unwrap();
    assert_eq!(report.room_bytes, 1536 * MIB);
    let error = machine
        .check(1536 * MIB + 1, Locking::Pageable, 0)
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("pods/a/memory.max") && text.contains("MemoryMax="),
        "{text}"
    );
    // The group above becomes the tightest when its other members fill it.
    machine.write(
        &format!("{top}/pods/memory.current"),
        &format!("{}\n", 3 * GIB),
    );
    let report = read(&machine.paths()).unwrap();
    assert_eq!(report.room_bytes, GIB);
    assert!(report.cgroup.unwrap().file.ends_with("pods/memory.max"));
}

#[test]
fn the_slow_down_limit_binds_like_the_hard_one() {
    let machine = Machine::new();
    machine.group("0::/a\n", MOUNT_V2);
    machine.write("sys/fs/cgroup/a/memory.max", "max\n");
    machine.write("sys/fs/cgroup/a/memory.high", "1048576\n");
    let error = machine.check(2 * MIB, Locking::Pageable, 0).unwrap_err();
    assert!(error.to_string().contains("memory.high"), "{error}");
}

#[test]
fn version_1_limits_are_found_beside_other_controllers() {
    let machine = Machine::new();
    machine.group("5:cpu:/x\n4:memory:/jobs/7\n0::/\n", MOUNT_V1);
    let top = "sys/fs/cgroup/memory";
    machine.write(
        &format!("{top}/memory.limit_in_bytes"),
        "9223372036854771712\n",
    );
    machine.write(
        &format!("{top}/jobs/memory.limit_in_bytes"),
        &format!("{GIB}\n"),
    );
    machine.write(
        &format!("{top}/jobs/memory.usage_in_bytes"),
        &format!("{}\n", 256 * MIB),
    );
    machine.write(
        &format!("{top}/jobs/7/memory.limit_in_bytes"),
        &format!("{}\n", 3 * GIB),
    );
    let report = read(&machine.paths()).unwrap();
    assert_eq!(report.room_bytes, 768 * MIB);
    assert_eq!(report.cgroup.unwrap().limit, GIB);
}

#[test]
fn a_container_sees_its_own_group_at_the_mount() {
    let machine = Machine::new();
    for (group, root) in [
        ("/kube/pod/c1", "/kube/pod/c1"),
        ("/../../c1", "/"),
        ("/c1", "/other"),
    ] {
        let mount = MOUNT_V2.replace(" / /sys", &format!(" {root} /sys"));
        machine.group(&format!("0::{group}\n"), &mount);
        machine.write("sys/fs/cgroup/memory.max", &format!("{GIB}\n"));
        let report = read(&machine.paths()).unwrap();
        assert_eq!(
            report.cgroup.map(|group| group.limit),
            Some(GIB),
            "{group} {root}"
        );
    }
}

#[test]
fn a_used_up_group_has_no_room() {
    let machine = Machine::new();
    machine.group("0::/a\n", MOUNT_V2);
    machine.write("sys/fs/cgroup/a/memory.max", "1000\n");
    machine.write("sys/fs/cgroup/a/memory.current", "2000\n");
    assert_eq!(read(&machine.paths()).unwrap().room_bytes, 0);
}

#[test]
fn unreadable_files_are_named() {
    let machine = Machine::new();
    machine.write("proc/meminfo", "MemTotal: 1 kB\n");
    let error = read(&machine.paths()).unwrap_err();
    assert!(error.to_string().contains("meminfo"), "{error}");
}

#[test]
fn resident_bytes_come_from_the_process_status() {
    assert_eq!(resident_bytes(&Machine::new().paths()).unwrap(), 2 * MIB);
}

#[test]
fn the_real_system_can_be_read() {
    let paths = LimitPaths::default();
    let report = check_segment(&paths, 4096, Locking::Pageable, 1).unwrap();
    assert!(report.room_bytes >= 4096 && report.files_used >= 3);
    assert!(resident_bytes(&paths).unwrap() > 4096);
    let files = raise_open_files().unwrap();
    assert_eq!(files.soft, files.hard);
}
