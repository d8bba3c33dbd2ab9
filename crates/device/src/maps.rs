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

impl Maps {
    /// Reads the kernel's list.
    pub(crate) fn now() -> Result<Self, DeviceError> {
        let text = std::fs::read("/proc/self/maps").map_err(|error| DeviceError::System {
            step: "read the list of mapped memory",
            reason: error.to_string(),
        })?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        let mut maps = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let Some((start, end, readable, writable)) = line_of(line) else {
                continue;
            };
            if !readable {
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

/// Start, end, and whether it may be read and written.
fn line_of(line: &[u8]) -> Option<(u64, u64, bool, bool)> {
    let mut words = line.split(|byte| *byte == b' ');
    let range = std::str::from_utf8(words.next()?).ok()?;
    let rights = words.next()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let has = |nth: usize, right: u8| rights.get(nth) == Some(&right);
    Some((start, end, has(0, b'r'), has(1, b'w')))
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
