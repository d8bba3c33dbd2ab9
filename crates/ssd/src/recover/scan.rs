//! One bucket: its index if that is sound, else every block in turn.

use super::{Counts, FoundBucket};
use crate::event::Fault;
use crate::format::footer::{self, Entry, Trailer};
use crate::format::record::{self, Content, Head, Position, pieces_are_sound};
use crate::format::{BLOCK_BYTES, BucketId, DiskId, FormatError, tombstone};
use crate::sizing::blocks;
use snowskin_types::limits::PIECE_BYTES;
use std::sync::Arc;

/// Read at the end of a bucket in the hope that all of its index is in there.
const TAIL_BYTES: u64 = 64 << 10;
/// Read at a time while scanning: whole pieces, and more than the longest head.
const WINDOW_BYTES: u64 = 1 << 20;

/// What a bucket needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Another read.
    Read,
    /// Nothing.
    Done,
}

#[derive(Debug)]
enum Stage {
    Tail,
    Index(Trailer),
    /// Looking for the next head.
    Seek(u64),
    /// Checking a payload.
    Payload {
        head: Head,
        at: u64,
        piece: u64,
    },
    End,
}

/// A bucket being recovered.
#[derive(Debug)]
pub(super) struct Scan {
    disk: DiskId,
    stage: Stage,
    found: FoundBucket,
}

impl Scan {
    pub(super) fn new(disk: DiskId, bucket: BucketId, bytes: u64) -> Self {
        Scan {
            disk,
            stage: Stage::Tail,
            found: FoundBucket {
                bucket,
                bytes,
                sealed: false,
                opaque: false,
                damaged: 0,
                end: BLOCK_BYTES,
                objects: Vec::new(),
                voids: Vec::new(),
                tombstones: Vec::new(),
            },
        }
    }

    /// The next read: offset and bytes.
    pub(super) fn wants(&self) -> (u64, u64) {
        let size = self.found.bytes;
        let (offset, bytes) = match &self.stage {
            Stage::Tail => (size.saturating_sub(TAIL_BYTES), TAIL_BYTES),
            Stage::Index(trailer) => (trailer.offset, blocks(trailer.bytes)),
            Stage::Seek(at) => (*at, WINDOW_BYTES),
            Stage::Payload { head, at, piece } => {
                let done = piece * PIECE_BYTES;
                let left = head.payload_bytes().saturating_sub(done);
                (at + head.head_bytes + done, blocks(left).min(WINDOW_BYTES))
            }
            Stage::End => (size, 0),
        };
        (offset, bytes.min(size.saturating_sub(offset)))
    }

    pub(super) fn take(&mut self, bytes: Result<&[u8], Fault>, counts: &mut Counts) -> Step {
        match bytes {
            Ok(bytes) => self.take_bytes(bytes, counts),
            Err(_) => {
                counts.read_faults += 1;
                self.skip_unreadable();
            }
        }
        if let Stage::Seek(at) = self.stage
            && at >= self.found.bytes
        {
            self.stage = Stage::End;
        }
        if matches!(self.stage, Stage::End) {
            Step::Done
        } else {
            Step::Read
        }
    }

    pub(super) fn finish(self) -> FoundBucket {
        self.found
    }

    fn skip_unreadable(&mut self) {
        let (offset, bytes) = self.wants();
        self.stage = match &self.stage {
            // Whatever is unreadable there is met again by the scan.
            Stage::Tail | Stage::Index(_) => Stage::Seek(BLOCK_BYTES),
            Stage::Seek(_) => {
                self.found.opaque = true;
                Stage::Seek(offset.saturating_add(bytes))
            }
            Stage::Payload { head, at, .. } => {
                self.found.opaque = true;
                Stage::Seek(at.saturating_add(head.record_bytes()))
            }
            Stage::End => Stage::End,
        };
    }

    fn take_bytes(&mut self, bytes: &[u8], counts: &mut Counts) {
        match std::mem::replace(&mut self.stage, Stage::End) {
            Stage::Tail => self.take_tail(bytes, counts),
            Stage::Index(trailer) => self.take_index(&trailer, bytes, counts),
            Stage::Seek(at) => self.take_window(at, bytes),
            Stage::Payload { head, at, piece } => self.take_payload(head, at, piece, bytes),
            Stage::End => {}
        }
    }

    fn take_tail(&mut self, tail: &[u8], counts: &mut Counts) {
        let (bucket, size) = (self.found.bucket, self.found.bytes);
        let block = tail.len().saturating_sub(BLOCK_BYTES as usize);
        let block = tail.get(block..).unwrap_or_default();
        match footer::decode_trailer(self.disk, bucket, size, block) {
            Ok(trailer) => {
                let start = size - tail.len() as u64;
                let within = trailer
                    .offset
                    .checked_sub(start)
                    .and_then(|skip| usize::try_from(skip).ok())
                    .and_then(|skip| tail.get(skip..));
                match within {
                    Some(index) => self.take_index(&trailer, index, counts),
                    None => self.stage = Stage::Index(trailer),
                }
            }
            Err(error) => {
                counts.damaged_indexes += u64::from(error != FormatError::Magic);
                self.stage = Stage::Seek(BLOCK_BYTES);
            }
        }
    }

    fn take_index(&mut self, trailer: &Trailer, bytes: &[u8], counts: &mut Counts) {
        let Ok(entries) = footer::decode(self.disk, trailer, bytes) else {
            counts.damaged_indexes += 1;
            self.stage = Stage::Seek(BLOCK_BYTES);
            return;
        };
        for entry in entries {
            match entry {
                Entry::Object { offset, descriptor } => {
                    self.found.objects.push((offset, descriptor));
                }
                Entry::Void(id) => self.found.voids.push(id),
                Entry::Tombstone(id) => self.found.tombstones.push(id),
            }
        }
        self.found.sealed = true;
        self.found.damaged = trailer.damaged;
        self.found.end = trailer.offset;
    }

    /// Looks for heads in the bytes from `start` on, block by block.
    fn take_window(&mut self, start: u64, window: &[u8]) {
        let mut skip = 0usize;
        while skip + (BLOCK_BYTES as usize) <= window.len() {
            let at = start + skip as u64;
            let place = Position {
                bucket: self.found.bucket,
                offset: at,
            };
            let bytes = window.get(skip..).unwrap_or_default();
            match record::decode(self.disk, place, bytes) {
                Ok(head) => {
                    let end = at.saturating_add(head.record_bytes());
                    if end > self.found.bytes {
                        self.damage(at + BLOCK_BYTES);
                        skip += BLOCK_BYTES as usize;
                        continue;
                    }
                    let payload = head.payload_bytes() as usize;
                    let behind = bytes.get(head.head_bytes as usize..).unwrap_or_default();
                    match behind.get(..payload) {
                        Some(payload) => {
                            let sound =
                                pieces_are_sound(payload.len() as u64, head.sums(), 0, payload);
                            self.enter(&head, at, sound, payload);
                            skip += head.record_bytes() as usize;
                        }
                        None => {
                            self.stage = Stage::Payload { head, at, piece: 0 };
                            return;
                        }
                    }
                }
                // The window ends within the head.
                Err(FormatError::Short) if skip > 0 => {
                    self.stage = Stage::Seek(at);
                    return;
                }
                Err(FormatError::Magic) => skip += BLOCK_BYTES as usize,
                Err(_) => {
                    self.damage(at + BLOCK_BYTES);
                    skip += BLOCK_BYTES as usize;
                }
            }
        }
        // A record may end behind the window; what is between is its padding.
        let next = start.saturating_add(skip.max(BLOCK_BYTES as usize) as u64);
        self.stage = Stage::Seek(next);
    }

    fn take_payload(&mut self, head: Head, at: u64, piece: u64, bytes: &[u8]) {
        let size = head.payload_bytes();
        let left = size.saturating_sub(piece * PIECE_BYTES);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let payload = bytes.get(..len).unwrap_or_default();
        let sound = pieces_are_sound(size, head.sums(), piece, payload);
        let next = piece + (len as u64).div_ceil(PIECE_BYTES);
        if sound && next * PIECE_BYTES < size {
            self.stage = Stage::Payload {
                head,
                at,
                piece: next,
            };
            return;
        }
        self.enter(&head, at, sound, payload);
        self.stage = Stage::Seek(at.saturating_add(head.record_bytes()));
    }

    /// A record with a sound head is over; its place is known even when its payload is torn. The last
    /// bytes of the payload are given, which for tombstones are all.
    fn enter(&mut self, head: &Head, at: u64, sound: bool, payload: &[u8]) {
        let end = at.saturating_add(head.record_bytes());
        if !sound {
            self.damage(end);
            return;
        }
        self.found.end = self.found.end.max(end);
        match &head.content {
            Content::Object(descriptor) => {
                self.found.objects.push((at, Arc::clone(descriptor)));
            }
            Content::Tombstones { .. } => match tombstone::decode(payload) {
                Ok(list) => self.found.tombstones.extend(list),
                Err(_) => self.found.damaged = self.found.damaged.saturating_add(1),
            },
        }
    }

    fn damage(&mut self, end: u64) {
        self.found.damaged = self.found.damaged.saturating_add(1);
        self.found.end = self.found.end.max(end);
    }
}
