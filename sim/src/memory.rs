//! A node's segment as the one-sided transport sees it: plain bytes that whoever holds an extent
//! may touch, at any time, without asking the index.

use crate::content;
use snowskin_types::access::Extent;

/// The bytes of one process life of a node.
#[derive(Debug)]
pub struct Memory(Vec<u8>);

impl Memory {
    /// Fresh memory.
    pub fn new(capacity: u64) -> Self {
        Memory(vec![content::FRESH; capacity as usize])
    }

    /// Writes bytes `from..to` of a put into its place within an object's extents.
    pub fn write(&mut self, extents: &[Extent], from: u64, to: u64, put: content::PutId) {
        pieces(extents, from, to, |at, object_offset, len| {
            if let Some(target) = self.0.get_mut(at..at + len) {
                content::fill(put, object_offset, target);
            }
        });
    }

    /// Appends bytes `from..to` of an object to `out`.
    pub fn read(&self, extents: &[Extent], from: u64, to: u64, out: &mut Vec<u8>) {
        pieces(extents, from, to, |at, _, len| {
            if let Some(source) = self.0.get(at..at + len) {
                out.extend_from_slice(source);
            }
        });
    }
}

fn pieces(extents: &[Extent], from: u64, to: u64, mut each: impl FnMut(usize, u64, usize)) {
    let mut start = 0;
    for extent in extents {
        let end = start + extent.len;
        let (low, high) = (start.max(from), end.min(to));
        if low < high {
            let at = extent.offset + (low - start);
            each(at as usize, low, (high - low) as usize);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use content::PutId;

    #[test]
    fn bytes_follow_the_order_of_the_extents() {
        let mut memory = Memory::new(1024);
        let extents = [
            Extent {
                offset: 512,
                len: 64,
            },
            Extent { offset: 0, len: 40 },
        ];
        memory.write(&extents, 0, 104, PutId(3));
        let mut out = Vec::new();
        memory.read(&extents, 32, 104, &mut out);
        assert_eq!(content::first_difference(PutId(3), 32, &out), None);
        assert_eq!(out.len(), 72);
    }
}
