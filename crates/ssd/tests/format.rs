//! The format: round trips, hostile bytes, and the example of docs/design/bucket-format.md.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod rig;

use proptest::collection::vec;
use proptest::prelude::*;
use rig::{BUCKET, DISK, recover};
use snowskin_ssd::format::bucket::{BucketHeader, file_name, parse_file_name};
use snowskin_ssd::format::footer::{self, Entry};
use snowskin_ssd::format::record::{
    self, Acked, Content, Descriptor, Position, encode_object, encode_tombstones,
};
use snowskin_ssd::format::superblock::Superblock;
use snowskin_ssd::format::tombstone::{self, Incarnation};
use snowskin_ssd::format::{BucketId, DiskId, FormatError};
use snowskin_types::checksum::PieceSums;
use snowskin_types::id::ClusterId;
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::object::{Attributes, Shape};
use snowskin_types::time::Millis;
use snowskin_types::version::Version;
use std::sync::Arc;

const AT: Position = Position {
    bucket: BucketId(3),
    offset: 8192,
};

prop_compose! {
    fn name()(tenant in "[a-z]{1,20}", key in vec(any::<u8>(), 1..2000)) -> ObjectName {
        ObjectName::new(Tenant::new(&tenant).unwrap(), Key::new(&key).unwrap())
    }
}

prop_compose! {
    fn descriptor()(
        name in name(),
        version in any::<u64>(),
        sums in vec(any::<u64>(), 0..40),
        less in 0u64..262_144,
        hard_pin in any::<bool>(),
        soft in proptest::option::of(any::<u64>()),
        group in proptest::option::of("[a-z]{0,40}"),
        data_type in any::<u32>(),
        acked in any::<bool>(),
    ) -> Descriptor {
        let sums = PieceSums(sums.into());
        let size = (sums.0.len() as u64 * 262_144).saturating_sub(less);
        Descriptor {
            name,
            version: Version::from_raw(version),
            shape: Shape { size, checksum: sums.whole(size) },
            attributes: Attributes {
                hard_pin,
                soft_pin: soft.map(Millis),
                group: group.map(|g| g.into()),
                data_type,
            },
            sums,
            acked: if acked { Acked::Yes } else { Acked::No },
        }
    }
}

proptest! {
    #[test]
    fn records_come_back(d in descriptor()) {
        let head = encode_object(DISK, AT, &d);
        prop_assert_eq!(head.len() as u64, d.head_bytes());
        let found = record::decode(DISK, AT, &head).unwrap();
        prop_assert_eq!(found.record_bytes(), d.record_bytes());
        prop_assert_eq!(found.content, Content::Object(Arc::new(d)));
    }

    #[test]
    fn records_count_only_where_they_were_written(d in descriptor(), bucket: u64, offset: u64) {
        let head = encode_object(DISK, AT, &d);
        let elsewhere = Position { bucket: BucketId(bucket), offset };
        prop_assume!(elsewhere != AT);
        prop_assert!(record::decode(DISK, elsewhere, &head).is_err());
        let other = DiskId([8; 16]);
        prop_assert_eq!(record::decode(other, AT, &head), Err(FormatError::Checksum));
    }

    #[test]
    fn a_flipped_bit_of_a_head_is_noticed(d in descriptor(), place: prop::sample::Index) {
        let mut head = encode_object(DISK, AT, &d);
        let used = 80 + u32::from_le_bytes(head[24..28].try_into().unwrap()) as usize;
        let bit = place.index(used * 8);
        head[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(record::decode(DISK, AT, &head).is_err());
    }

    #[test]
    fn indexes_come_back(objects in vec(descriptor(), 0..20), names in vec((name(), any::<u64>()), 0..20)) {
        let mut entries = Vec::new();
        let mut offset = 4096;
        for object in objects {
            entries.push(Entry::Object { offset, descriptor: Arc::new(object.clone()) });
            offset += object.record_bytes();
        }
        for (i, (name, version)) in names.into_iter().enumerate() {
            let one = Incarnation { name, version: Version::from_raw(version) };
            entries.push(if i % 2 == 0 { Entry::Void(one) } else { Entry::Tombstone(one) });
        }
        let size = 256 << 20;
        let (at, bytes) = footer::encode(DISK, AT.bucket, size, offset, 9, &entries).unwrap();
        prop_assert_eq!(at + bytes.len() as u64, size);
        let sum: u64 = entries.iter().map(footer::entry_bytes).sum();
        let block = &bytes[bytes.len() - 4096..];
        let trailer = footer::decode_trailer(DISK, AT.bucket, size, block).unwrap();
        prop_assert_eq!((trailer.bytes, trailer.damaged), (sum, 9));
        prop_assert_eq!(footer::decode(DISK, &trailer, &bytes).unwrap(), entries);
        prop_assert!(footer::decode_trailer(DISK, BucketId(4), size, block).is_err());
    }

    #[test]
    fn tombstones_come_back(names in vec((name(), any::<u64>()), 0..20)) {
        let one = |(name, version)| Incarnation { name, version: Version::from_raw(version) };
        let list: Vec<_> = names.into_iter().map(one).collect();
        let mut bytes = Vec::new();
        list.iter().for_each(|i| tombstone::encode(i, &mut bytes));
        let record = encode_tombstones(DISK, AT, &bytes);
        let head = record::decode(DISK, AT, &record).unwrap();
        prop_assert_eq!(head.record_bytes() as usize, record.len());
        prop_assert_eq!(tombstone::decode(&bytes).unwrap(), list);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..9000), magic in 0usize..5) {
        let mut bytes = bytes;
        let magic: &[u8] = [b"SNOWRECD", b"SNOWFOOT", b"SNOWBUCK", b"SNOWDISK", b"xxxxxxxx"][magic];
        if bytes.len() >= 8 {
            bytes[..8].copy_from_slice(magic);
        }
        record::decode(DISK, AT, &bytes).ok();
        footer::decode_trailer(DISK, AT.bucket, BUCKET, &bytes).ok();
        BucketHeader::decode(DISK, &bytes).ok();
        Superblock::decode(&bytes).ok();
        tombstone::decode(&bytes).ok();
        snowskin_ssd::format::attributes::decode(&bytes).ok();
    }

    #[test]
    fn sound_checksums_over_wrong_fields_do_not_panic(
        d in descriptor(), place in 16usize..80, value: u8,
    ) {
        // What a later or a faulty writer might leave: the sum fits, a field does not.
        let mut head = encode_object(DISK, AT, &d);
        let used = 80 + u32::from_le_bytes(head[24..28].try_into().unwrap()) as usize;
        head[place] = value;
        let sum = snowskin_types::checksum::crc64(&[&DISK.0[..], &head[16..used]].concat());
        head[8..16].copy_from_slice(&sum.to_le_bytes());
        record::decode(DISK, AT, &head).ok();
    }
}

#[test]
fn file_names_have_one_spelling() {
    assert_eq!(
        parse_file_name(file_name(BucketId(0x1f)).as_bytes()),
        Some(BucketId(0x1f))
    );
    for other in [
        "bucket-1f",
        "bucket-000000000000001F",
        "bucket-000000000000001f.tmp",
        "bucket-ffffffffffffffff",
        "bucket-+00000000000001f",
        "superblock",
        "",
    ] {
        assert_eq!(parse_file_name(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn a_torn_superblock_leaves_the_former_one() {
    let mut superblock = Superblock {
        disk: DISK,
        cluster: ClusterId(5),
        opened: 1,
        bucket_bytes: BUCKET,
    };
    let mut file = vec![0; 8192];
    for opened in 1..6 {
        superblock.opened = opened;
        let (offset, block) = superblock.encode();
        let before = file.clone();
        file[offset as usize..][..4096].copy_from_slice(&block);
        assert_eq!(Superblock::decode(&file).unwrap(), superblock);
        if opened > 1 {
            let mut torn = before;
            torn[offset as usize..][..40].copy_from_slice(&block[..40]);
            assert_eq!(Superblock::decode(&torn).unwrap().opened, opened - 1);
        }
    }
    assert_eq!(Superblock::decode(&[]), Err(FormatError::Short));
    assert_eq!(Superblock::decode(&[0; 8192]), Err(FormatError::Magic));
}

/// The object of the example.
fn example() -> (Descriptor, Vec<u8>) {
    let payload = b"snow".to_vec();
    let sums = PieceSums::of(&payload);
    let descriptor = Descriptor {
        name: ObjectName::new(Tenant::default(), Key::new(b"k1").unwrap()),
        version: Version::new(snowskin_types::Term(2), 7).unwrap(),
        shape: Shape {
            size: 4,
            checksum: sums.whole(4),
        },
        attributes: Attributes {
            hard_pin: true,
            data_type: 6,
            ..Attributes::default()
        },
        sums,
        acked: Acked::Yes,
    };
    (descriptor, payload)
}

#[test]
fn the_example_of_the_document_is_what_is_written() {
    let disk = DiskId(*b"0123456789abcdef");
    let at = Position {
        bucket: BucketId(1),
        offset: 4096,
    };
    let (descriptor, _) = example();
    let head = encode_object(disk, at, &descriptor);
    let used = 80 + u32::from_le_bytes(head[24..28].try_into().unwrap()) as usize;
    let mut shown = String::new();
    for (row, bytes) in head[..used].chunks(16).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
        shown.push_str(&format!("{:04x}  {}\n", row * 16, hex.join(" ")));
    }
    let document = include_str!("../../../docs/design/bucket-format.md");
    assert!(document.contains(&shown), "the example is:\n{shown}");
}

#[test]
fn a_record_inside_an_objects_bytes_is_no_record() {
    use rig::disk::Cut;
    // Somebody stores the very bytes of a record of this disk, as an object of its own.
    let mut rig = rig::Rig::new(1);
    let inner = rig::incarnation("inner", 5);
    let forged = encode_object(DISK, AT, &rig::describe(&inner, &[]));
    let outer = rig::incarnation("outer", 1);
    rig.oracle.bytes.insert(outer.clone(), forged);
    rig.append(&outer, 0);
    // Its own head is torn, so that the scan comes to its payload.
    let torn = rig::incarnation("torn", 2);
    rig.append(&torn, 9);
    rig.run();
    let (bucket, file) = rig.disk.files.iter_mut().next().unwrap();
    assert_eq!(bucket.0, 0);
    file.data[4096 + 30] ^= 1;
    let found = rig.cut(Cut::Kill);
    assert_eq!(
        found.counts.damaged_records, 2,
        "the head, and the forged one"
    );
    assert_eq!(rig.held(), [torn].into());
}

#[test]
fn what_is_not_ours_is_left_alone() {
    use snowskin_ssd::recover::{FileKind, Listed, Recovery};
    let listed = |name: &str, kind, bytes| Listed {
        name: name.into(),
        kind,
        bytes,
    };
    let recovery = Recovery::new(
        DISK,
        [
            listed("superblock", FileKind::File, 8192),
            listed("notes.txt", FileKind::File, 1 << 20),
            listed("bucket-0000000000000009", FileKind::Other, 1 << 20),
            listed("bucket-0000000000000003", FileKind::File, 12345),
            listed("bucket-0000000000000004", FileKind::File, 0),
            listed("lost+found", FileKind::Other, 4096),
        ],
    );
    let found = recovery.finish();
    assert_eq!((found.counts.foreign, found.counts.misfits), (3, 1));
    assert_eq!(found.next_bucket, 10, "no number is used again");
    assert_eq!(found.leftovers, [BucketId(4)]);
    assert!(found.buckets.is_empty());
    recover(&rig::disk::Disk::default());
}
