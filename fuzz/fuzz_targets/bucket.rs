//! Recovery of a bucket whose bytes are anything.
//!
//! Input: one byte of flags (bit 0: make the checksums of structures fit), then pieces of (block number 1
//! byte, count of bytes 2 bytes, bytes), laid into a bucket of 1 MiB of zeroes. Block number 255 is the last block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowskin_ssd::event::{Event, Fault};
use snowskin_ssd::format::bucket::{BucketHeader, file_name};
use snowskin_ssd::format::record::pieces_are_sound;
use snowskin_ssd::format::superblock::Superblock;
use snowskin_ssd::format::{BucketId, DiskId, attributes, tombstone};
use snowskin_ssd::recover::{FileKind, Listed, Recovery};
use snowskin_ssd::sizing::Sizing;
use snowskin_ssd::{Config, Effect, Log};
use snowskin_types::checksum::crc64;
use snowskin_types::time::Now;

const DISK: DiskId = DiskId([7; 16]);
const BYTES: usize = 1 << 20;

fn picture(input: &[u8]) -> Vec<u8> {
    let mut bucket = vec![0; BYTES];
    let Some((flags, mut rest)) = input.split_first() else {
        return bucket;
    };
    let mut touched = Vec::new();
    while let Some((&[block, low, high], behind)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (bytes, later) = behind.split_at(len);
        let at = usize::from(block) * 4096;
        let len = len.min(BYTES - at);
        bucket[at..at + len].copy_from_slice(&bytes[..len]);
        touched.push(at);
        rest = later;
    }
    if flags & 1 == 1 {
        // The trailer's sum covers that of its index, so it comes last.
        touched.sort_unstable();
        touched.into_iter().for_each(|at| fit(&mut bucket, at));
    }
    bucket
}

fn bound(bytes: &[u8]) -> u64 {
    crc64(&[&DISK.0[..], bytes].concat())
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |n, b| (n << 8) | usize::from(*b))
}

/// Sets the checksum of the structure that begins here.
fn fit(bucket: &mut [u8], at: usize) {
    let covered = match &bucket[at..at + 8] {
        b"SNOWRECD" => 80 + number(&bucket[at + 24..at + 28]).min(70_000),
        b"SNOWBUCK" => 64,
        b"SNOWFOOT" => {
            let (start, len) = (
                number(&bucket[at + 32..at + 36]),
                number(&bucket[at + 40..at + 44]),
            );
            if let Some(index) = bucket.get(start..start.saturating_add(len)) {
                let sum = bound(index).to_le_bytes();
                bucket[at + 56..at + 64].copy_from_slice(&sum);
            }
            72
        }
        _ => return,
    };
    if let Some(bytes) = bucket.get(at + 16..at + covered) {
        let sum = bound(bytes).to_le_bytes();
        bucket[at + 8..at + 16].copy_from_slice(&sum);
    }
}

fuzz_target!(|input: &[u8]| {
    BucketHeader::decode(DISK, input).ok();
    Superblock::decode(input).ok();
    attributes::decode(input).ok();
    tombstone::decode(input).ok();

    let bucket = picture(input);
    let mut recovery = Recovery::new(
        DISK,
        [Listed {
            name: file_name(BucketId(0)).into_bytes(),
            kind: FileKind::File,
            bytes: BYTES as u64,
        }],
    );
    let mut wanted = Vec::new();
    loop {
        recovery.poll(&mut wanted);
        if wanted.is_empty() {
            break;
        }
        for read in wanted.drain(..) {
            assert!(read.bytes > 0 && read.offset + read.bytes <= BYTES as u64);
            let bytes = bucket.get(read.offset as usize..(read.offset + read.bytes) as usize);
            recovery.read_done(read.bucket, bytes.ok_or(Fault::Io));
        }
    }
    assert!(recovery.is_complete());
    let found = recovery.finish();
    for (offset, object) in found.buckets.iter().flat_map(|b| &b.objects) {
        assert!(offset + object.record_bytes() <= BYTES as u64);
        let start = (offset + object.head_bytes()) as usize;
        let payload = &bucket[start..start + object.shape.size as usize];
        let sound = pieces_are_sound(object.shape.size, &object.sums, 0, payload);
        // What a scan found was checked; what an index names is checked when it is read.
        assert!(sound || found.counts.sealed == 1);
    }
    // The log takes up whatever was found, seals it, and keeps its invariants.
    let config = Config::new(Sizing::of(16 << 20).unwrap(), DISK, 1, 1);
    let mut effects = Vec::new();
    let mut log = Log::adopt(Now(0), config, found, &mut effects);
    for now in 1..200 {
        log.check().unwrap();
        if effects.is_empty() {
            break;
        }
        for effect in std::mem::take(&mut effects) {
            let result = Ok(());
            match effect {
                Effect::Create { op, .. }
                | Effect::Write { op, .. }
                | Effect::Sync { op, .. }
                | Effect::Delete { op, .. } => {
                    log.handle(Now(now * 10), Event::Done { op, result }, &mut effects);
                }
                _ => {}
            }
        }
        log.handle(Now(now * 10 + 5), Event::Tick, &mut effects);
    }
});
