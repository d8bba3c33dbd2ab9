//! What is mapped in this process, as the kernel tells it.

use crate::error::DeviceError;
use crate::registry::Run;

/// One snapshot of the mapped ranges that the processor may read, merged, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    writable: bool,
}

/// What the bytes are wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    ReadWrite,
}

/// The kernel's list.
pub(crate) fn list() -> Result<Vec<u8>, DeviceError> {
    std::fs::read("/proc/self/maps").map_err(|error| DeviceError::System {
        step: "read the list of mapped memory",
        reason: error.to_string(),
    })
}

/// How many of the first bytes of a range are mapped files of devices, with the rights needed. Drivers
/// give out memory so that the processor can touch and the kernel cannot copy, such as the pinned host
/// memory of some.
pub(crate) fn device_reach(list: &[u8], run: Run, need: Need) -> u64 {
    let start = run.address as u64;
    let end = start.saturating_add(run.len);
    let mut reached = start;
    for line in list.split(|byte| *byte == b'\n').filter_map(line_of) {
        if line.end <= reached {
            continue;
        }
        let has_rights = line.readable && (need == Need::Read || line.writable);
        if reached >= end || line.start > reached || !has_rights || !is_of_device(line.path) {
            break;
        }
        reached = line.end;
    }
    reached.min(end) - start
}

/// Whether a path is that of a device. Some names below `/dev` are of ordinary memory.
fn is_of_device(path: &[u8]) -> bool {
    let ordinary: [&[u8]; 3] = [b"shm", b"zero", b"hugepages"];
    let name = path.strip_prefix(b"/dev/");
    name.is_some_and(|name| !ordinary.iter().any(|start| name.starts_with(start)))
}

impl Maps {
    /// Reads the kernel's list.
    pub(crate) fn now() -> Result<Self, DeviceError> {
        Ok(Self::parse(&list()?))
    }

    fn parse(text: &[u8]) -> Self {
        let mut maps = Self::default();
        for line in text.split(|byte| *byte == b'\n').filter_map(line_of) {
            let Line {
                start,
                end,
                writable,
                ..
            } = line;
            if !line.readable {
                continue;
            }
            match maps.ranges.last_mut() {
                Some(last) if last.end == start && last.writable == writable => last.end = end,
                _ => maps.ranges.push(Range {
                    start,
                    end,
                    writable,
                }),
            }
        }
        maps
    }

    /// Checks that the processor may touch a whole range.
    pub(crate) fn check(&self, run: Run, need: Need) -> Result<(), DeviceError> {
        let (address, len) = (run.address, run.len);
        let start = address as u64;
        let end = start.saturating_add(len);
        let first = self.ranges.partition_point(|range| range.end <= start);
        let mut reached = start;
        for range in self.ranges.iter().skip(first) {
            if reached >= end || range.start > reached {
                break;
            }
            if need == Need::ReadWrite && !range.writable {
                let at = reached as usize;
                return Err(DeviceError::ReadOnly { address, len, at });
            }
            reached = range.end;
        }
        if reached >= end {
            return Ok(());
        }
        let at = reached as usize;
        Err(DeviceError::NotMapped { address, len, at })
    }
}

/// One line of the list.
struct Line<'t> {
    start: u64,
    end: u64,
    readable: bool,
    writable: bool,
    /// Empty when there is none.
    path: &'t [u8],
}

fn line_of(line: &[u8]) -> Option<Line<'_>> {
    // Range, rights, offset, device, inode, path.
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let range = std::str::from_utf8(words.next()?).ok()?;
    let rights = words.next()?;
    let (start, end) = range.split_once('-')?;
    let has = |nth: usize, right: u8| rights.get(nth) == Some(&right);
    Some(Line {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        readable: has(0, b'r'),
        writable: has(1, b'w'),
        path: words.nth(3).unwrap_or_default().trim_ascii_start(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"1000-3000 rw-p 00000000 00:00 0 [heap]\n\
        3000-4000 rw-s 00000000 00:01 7 /memfd:a b (deleted)\n\
        4000-5000 r--p 00000000 08:01 9 /lib/\xff.so\n\
        5000-6000 ---p 00000000 00:00 0\n\
        7000-8000 rw-p 00000000 00:00 0\n\
        garbage\n";

    fn check(address: usize, len: u64, need: Need) -> Result<(), usize> {
        let run = Run { address, len };
        Maps::parse(TEXT)
            .check(run, need)
            .map_err(|error| match error {
                DeviceError::NotMapped { at, .. } => at,
                DeviceError::ReadOnly { at, .. } => at + 1,
                other => panic!("{other}"),
            })
    }

    #[test]
    fn a_range_may_cross_mappings_but_not_holes() {
        assert_eq!(check(0x1000, 0x3000, Need::ReadWrite), Ok(()));
        assert_eq!(check(0x3fff, 1, Need::ReadWrite), Ok(()));
        assert_eq!(check(0x1000, 0x4000, Need::Read), Ok(()));
        assert_eq!(check(0x1000, 0x3001, Need::ReadWrite), Err(0x4001));
        assert_eq!(check(0x4800, 0x900, Need::Read), Err(0x5000));
        assert_eq!(check(0x5800, 1, Need::Read), Err(0x5800));
        assert_eq!(check(0x800, 0x900, Need::Read), Err(0x800));
        assert_eq!(check(0x7fff, 2, Need::Read), Err(0x8000));
        assert_eq!(check(0x9000, u64::MAX, Need::Read), Err(0x9000));
    }

    #[test]
    fn only_files_of_devices_are_reached_as_such_and_only_with_the_rights_needed() {
        const TEXT: &[u8] =
            b"1000-3000 rw-s 00000000 00:05 901                        /dev/nvidia0\n\
            3000-4000 rw-s 00002000 00:05 77                         /dev/nvidiactl (deleted)\n\
            4000-5000 r--s 00000000 00:05 9                          /dev/davinci3\n\
            5000-6000 rw-s 00000000 00:01 7                          /dev/zero (deleted)\n\
            6000-7000 rw-s 00000000 00:01 8                          /dev/shm/dev/x\n\
            7000-8000 rw-s 00000000 00:01 8                          /dev/hugepages/x\n\
            8000-9000 rw-p 00000000 00:00 0 \n\
            9000-a000 rw-p 00000000 00:00 0                          [heap]\n\
            a000-b000 rw-s 00000000 00:01 8                          /home/dev/nvidia0\n\
            b000-c000 -w-s 00000000 00:05 9                          /dev/nvidia0\n\
            d000-e000 rw-s 00000000 00:05 9                          /dev/infiniband/uverbs0\n";
        let reach = |address: usize, len, need| device_reach(TEXT, Run { address, len }, need);
        assert_eq!(reach(0x1800, 0x10, Need::ReadWrite), 0x10);
        // Over neighbours, to where the rights or the files of devices end.
        assert_eq!(reach(0x1800, 0x8000, Need::ReadWrite), 0x2800);
        assert_eq!(reach(0x1800, 0x8000, Need::Read), 0x3800);
        assert_eq!(reach(0x4000, 0x10, Need::ReadWrite), 0);
        for ordinary in [
            0, 0x800, 0x5000, 0x6000, 0x7000, 0x8000, 0x9000, 0xa000, 0xb000, 0xc000,
        ] {
            assert_eq!(reach(ordinary, 0x10, Need::Read), 0, "{ordinary:#x}");
        }
        assert_eq!(reach(0xd000, u64::MAX, Need::Read), 0x1000);
        assert_eq!(reach(usize::MAX, 0x10, Need::Read), 0);
    }

    #[test]
    fn own_memory_is_found_and_own_code_is_read_only() {
        let bytes = vec![0u8; 1 << 20];
        let maps = Maps::now().unwrap();
        let run = |address: usize, len| Run { address, len };
        let address = bytes.as_ptr().expose_provenance();
        maps.check(run(address, bytes.len() as u64), Need::ReadWrite)
            .unwrap();
        let text = "literal".as_ptr().expose_provenance();
        maps.check(run(text, 7), Need::Read).unwrap();
        assert!(matches!(
            maps.check(run(text, 7), Need::ReadWrite),
            Err(DeviceError::ReadOnly { .. })
        ));
    }
}
