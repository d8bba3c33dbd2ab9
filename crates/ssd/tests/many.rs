//! A large slot: thousands of indexes, all of them found.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use snowskin_ssd::format::footer::{self, Entry};
use snowskin_ssd::format::record::{Acked, Descriptor};
use snowskin_ssd::format::{BucketId, DiskId, bucket::file_name};
use snowskin_ssd::recover::{FileKind, Listed, Recovery};
use snowskin_ssd::sizing::Sizing;
use snowskin_ssd::{Config, Log};
use snowskin_types::checksum::PieceSums;
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::object::{Attributes, Shape};
use snowskin_types::time::Now;
use snowskin_types::version::Version;
use std::sync::Arc;

const DISK: DiskId = DiskId([1; 16]);
const BUCKETS: u64 = 4096;
const RECORDS: u64 = 256;
const BYTES: u64 = 256 << 20;

/// The end of a sealed bucket: its index and trailer.
fn tail(bucket: u64) -> (u64, Vec<u8>) {
    let sums = PieceSums(Box::new([bucket]));
    let entries: Vec<Entry> = (0..RECORDS)
        .map(|n| Entry::Object {
            offset: 4096 + n * (1 << 20),
            descriptor: Arc::new(Descriptor {
                name: ObjectName::new(
                    Tenant::default(),
                    Key::new(format!("model/layer/{bucket:08x}{n:08x}").as_bytes()).unwrap(),
                ),
                version: Version::from_raw(bucket * RECORDS + n + 1),
                shape: Shape {
                    size: 100_000,
                    checksum: sums.whole(100_000),
                },
                attributes: Attributes::default(),
                sums: sums.clone(),
                acked: Acked::Yes,
            }),
        })
        .collect();
    footer::encode(DISK, BucketId(bucket), BYTES, 4096, 0, &entries).unwrap()
}

#[test]
fn every_record_of_4096_indexes_of_256_is_found() {
    let listing = (0..BUCKETS).map(|bucket| Listed {
        name: file_name(BucketId(bucket)).into_bytes(),
        kind: FileKind::File,
        bytes: BYTES,
    });
    let mut recovery = Recovery::new(DISK, listing);
    let (mut wanted, mut read) = (Vec::new(), 0);
    let mut making = std::time::Duration::ZERO;
    let start = std::time::Instant::now();
    loop {
        recovery.poll(&mut wanted);
        if wanted.is_empty() {
            break;
        }
        for one in wanted.drain(..) {
            let begun = std::time::Instant::now();
            let (offset, bytes) = tail(one.bucket.0);
            // Everything before the index reads as zeroes.
            let lead = offset.saturating_sub(one.offset) as usize;
            let skip = one.offset.saturating_sub(offset) as usize;
            let mut answer = vec![0; lead];
            answer.extend_from_slice(&bytes[skip..]);
            answer.truncate(one.bytes as usize);
            making += begun.elapsed();
            read += one.bytes;
            recovery.read_done(one.bucket, Ok(&answer));
        }
    }
    let found = recovery.finish();
    assert_eq!(found.counts.sealed, BUCKETS);
    assert_eq!(found.next_bucket, BUCKETS);
    let config = Config::new(Sizing::of(BUCKETS * BYTES * 2).unwrap(), DISK, 1, 3);
    let log = Log::adopt(Now(0), config, found, &mut Vec::new());
    assert_eq!(log.figures().versions, BUCKETS * RECORDS);
    println!(
        "{} MiB read, {} ms without the making of them",
        read >> 20,
        (start.elapsed() - making).as_millis()
    );
}
