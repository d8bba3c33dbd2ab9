use super::*;
use proptest::prelude::*;

const LEN: u64 = 3 * 4096 + 100;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 13 % 251) as u8).collect()
}

fn both() -> [Segment; 2] {
    let shared = Segment::shared("test", LEN, PeerAccess::Read).unwrap();
    [shared, Segment::anonymous(LEN).unwrap()]
}

fn contents(segment: &Segment) -> Vec<u8> {
    let mut bytes = vec![0; segment.len() as usize];
    segment.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_new_segment_is_zero_and_keeps_its_exact_length() {
    for segment in both() {
        assert_eq!(segment.len(), LEN);
        assert!(contents(&segment).iter().all(|byte| *byte == 0));
    }
    assert!(matches!(Segment::anonymous(0), Err(MemoryError::Empty)));
    assert!(matches!(
        Segment::shared("x", 0, PeerAccess::Read),
        Err(MemoryError::Empty)
    ));
    for len in [u64::MAX, u64::MAX / 2 + 1] {
        assert!(Segment::anonymous(len).is_err());
        assert!(Segment::shared("x", len, PeerAccess::Read).is_err());
    }
}

#[test]
fn a_name_with_a_zero_byte_is_an_error() {
    assert!(Segment::shared("a\0b", LEN, PeerAccess::Read).is_err());
}

#[test]
fn ranges_outside_a_segment_are_refused() {
    for segment in both() {
        let mut small = [0; 8];
        for offset in [LEN - 7, LEN, LEN + 1, u64::MAX - 7, u64::MAX] {
            assert!(segment.read_at(offset, &mut small).is_err(), "{offset}");
            assert!(segment.write_at(offset, &small).is_err(), "{offset}");
            assert!(segment.crc64(offset, 8).is_err(), "{offset}");
            assert!(segment.zero(offset, 8).is_err(), "{offset}");
            assert!(segment.copy_within(offset, 0, 8).is_err(), "{offset}");
            assert!(segment.copy_within(0, offset, 8).is_err(), "{offset}");
            assert!(segment.source([(0, 1), (offset, 8)]).is_err(), "{offset}");
            assert!(segment.target([(0, 1), (offset, 8)]).is_err(), "{offset}");
            assert!(segment.populate_range(offset, 8).is_err(), "{offset}");
        }
        assert!(segment.crc64(1, u64::MAX).is_err());
        segment.read_at(LEN, &mut []).unwrap();
        let text = segment.write_at(LEN, b"x").unwrap_err().to_string();
        assert_eq!(
            text,
            format!("offset {LEN} + length 1 is outside of {LEN} bytes")
        );
    }
}

proptest! {
    #[test]
    fn writes_land_exactly_where_they_should(offset in 0..LEN, len in 0..LEN, seed: u8) {
        let len = len.min(LEN - offset);
        for segment in both() {
            segment.write_at(0, &vec![0xA5; LEN as usize]).unwrap();
            let bytes = vec![seed; len as usize];
            segment.write_at(offset, &bytes).unwrap();
            let mut expected = vec![0xA5; LEN as usize];
            expected[offset as usize..(offset + len) as usize].fill(seed);
            prop_assert_eq!(contents(&segment), expected);
            prop_assert_eq!(segment.crc64(offset, len).unwrap(), checksum::crc64(&bytes));
        }
    }

    #[test]
    fn copies_within_match_a_plain_vector(source in 0..LEN, target in 0..LEN, len in 0..LEN) {
        let len = len.min(LEN - source).min(LEN - target);
        let segment = Segment::anonymous(LEN).unwrap();
        let mut expected = pattern(LEN as usize);
        segment.write_at(0, &expected).unwrap();
        segment.copy_within(source, target, len).unwrap();
        expected.copy_within(source as usize..(source + len) as usize, target as usize);
        prop_assert_eq!(contents(&segment), expected);
    }
}

#[test]
fn populating_keeps_bytes_and_reports_each_slice() {
    for segment in both() {
        segment.write_at(0, &pattern(LEN as usize)).unwrap();
        let mut seen = Vec::new();
        let done = segment
            .populate(5000, |progress| {
                seen.push(progress.done);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!((done, seen), (LEN, vec![5000, 10_000, LEN]));
        assert_eq!(contents(&segment), pattern(LEN as usize));
        segment.populate_range(LEN - 1, 1).unwrap();
        segment.populate_range(LEN, 0).unwrap();
        let stopped = segment.populate(4096, |_| ControlFlow::Break(())).unwrap();
        assert_eq!(stopped, 4096);
    }
}

#[test]
fn a_shared_segment_is_sealed_and_closed_on_exec() {
    let segment = Segment::shared("sealed", LEN, PeerAccess::Read).unwrap();
    let file = segment.file().unwrap();
    assert!(fs::ftruncate(file, 4096).is_err());
    assert!(fs::ftruncate(file, 1 << 20).is_err());
    assert!(
        rustix::io::fcntl_getfd(file)
            .unwrap()
            .contains(rustix::io::FdFlags::CLOEXEC)
    );
    assert!(rustix::io::pwrite(file, b"x", 0).is_err());
    assert!(Mapping::shared(file, LEN, Access::ReadWrite).is_err());
    segment.write_at(0, b"still writable by its owner").unwrap();
    assert!(Segment::anonymous(LEN).unwrap().file().is_none());
}

#[test]
fn peers_may_write_only_when_that_was_chosen() {
    let segment = Segment::shared("open", LEN, PeerAccess::ReadWrite).unwrap();
    assert_eq!(
        rustix::io::pwrite(segment.file().unwrap(), b"peer", 8).unwrap(),
        4
    );
    let mut seen = [0; 4];
    segment.read_at(8, &mut seen).unwrap();
    assert_eq!(&seen, b"peer");
}

#[test]
fn a_view_sees_what_the_owner_writes() {
    let segment = Segment::shared("viewed", LEN, PeerAccess::Read).unwrap();
    let file = segment.file().unwrap().try_clone_to_owned().unwrap();
    let view = SegmentView::attach(file, LEN).unwrap();
    segment.write_at(0, &pattern(LEN as usize)).unwrap();
    segment.store_u64(8192, 0x1122_3344_5566_7788).unwrap();
    assert_eq!(view.load_u64(8192).unwrap(), 0x1122_3344_5566_7788);
    assert_eq!(
        view.populate(4096, |_| ControlFlow::Continue(())).unwrap(),
        LEN
    );
    let mut seen = [0; 100];
    view.read_at(LEN - 100, &mut seen).unwrap();
    assert_eq!(seen[..], pattern(LEN as usize)[LEN as usize - 100..]);
    let mut gathered = vec![0; 30];
    let mut target = TargetSlices::of(&mut gathered);
    assert_eq!(
        view.copy_to([(10, 10), (40, 10), (0, 0)], &mut target)
            .unwrap(),
        20
    );
    assert!(view.copy_to([(LEN, 1)], &mut target).is_err());
    assert_eq!(gathered[..10], pattern(20)[10..]);
    assert_eq!(gathered[10..20], pattern(50)[40..]);
    assert_eq!(gathered[20..], [0; 10]);
    drop(segment);
    view.read_at(0, &mut seen).unwrap();
    assert_eq!(seen[..], pattern(100)[..]);
}

#[test]
fn a_view_refuses_files_that_could_shrink_or_are_short() {
    let open = fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fs::ftruncate(&open, LEN).unwrap();
    assert!(matches!(
        SegmentView::attach(open, LEN),
        Err(MemoryError::NotSealed)
    ));
    let plain = tempfile::tempfile().unwrap();
    assert!(SegmentView::attach(plain.into(), 1).is_err());
    let segment = Segment::shared("short", 4096, PeerAccess::Read).unwrap();
    let file = segment.file().unwrap().try_clone_to_owned().unwrap();
    let short = SegmentView::attach(file, 4097);
    assert!(matches!(
        short,
        Err(MemoryError::Short {
            actual: 4096,
            announced: 4097
        })
    ));
}

#[test]
fn words_are_aligned_and_bounded() {
    let segment = Segment::anonymous(LEN).unwrap();
    segment.store_u64(16, 7).unwrap();
    assert_eq!(segment.load_u64(16).unwrap(), 7);
    for offset in [1, 4, 15] {
        assert!(matches!(
            segment.load_u64(offset),
            Err(MemoryError::Unaligned { .. })
        ));
    }
    assert!(segment.store_u64(LEN - 4, 7).is_err());
    assert!(segment.load_u64(u64::MAX).is_err());
}

#[test]
fn overlapping_targets_are_refused() {
    let segment = Segment::anonymous(LEN).unwrap();
    let refused = segment.target([(100, 10), (0, 10), (109, 5)]);
    assert!(matches!(
        refused,
        Err(MemoryError::Overlap {
            offset: 109,
            len: 5
        })
    ));
    assert!(segment.target([(100, 10), (105, 0), (110, 5)]).is_ok());
    assert!(segment.source([(100, 10), (100, 10)]).is_ok());
}

#[test]
fn zeroing_clears_only_its_range() {
    let segment = Segment::anonymous(LEN).unwrap();
    segment.write_at(0, &[9; 300]).unwrap();
    segment.zero(100, 100).unwrap();
    let seen = contents(&segment);
    assert_eq!(
        (&seen[..100], &seen[200..300]),
        (&[9; 100][..], &[9; 100][..])
    );
    assert!(seen[100..200].iter().all(|byte| *byte == 0));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "are claimed for Write while 0..100 are in use for Read")]
fn writing_a_range_that_is_being_sent_is_caught() {
    let segment = Segment::anonymous(LEN).unwrap();
    let _sending = segment.source([(0, 100)]).unwrap();
    segment.write_at(99, b"x").ok();
}

#[test]
fn readers_share_and_released_ranges_are_writable() {
    let segment = Segment::anonymous(LEN).unwrap();
    let first = segment.source([(0, 100)]).unwrap();
    let second = segment.source([(50, 100)]).unwrap();
    segment.write_at(150, b"beside").unwrap();
    drop((first, second));
    segment.write_at(0, b"after").unwrap();
}

#[test]
fn threads_on_neighbouring_extents_do_not_disturb_each_other() {
    const THREADS: u64 = 4;
    const STRIPE: u64 = 777;
    const STRIPES: u64 = 40;
    let segment = Segment::anonymous(THREADS * STRIPES * STRIPE).unwrap();
    let segment = &segment;
    let work = move |thread: u64| {
        let extents = (0..STRIPES).map(|nth| ((nth * THREADS + thread) * STRIPE, STRIPE));
        for round in 0..20u64 {
            let bytes: Vec<u8> = (0..STRIPES * STRIPE)
                .map(|index| (index * (thread + 3) + round) as u8)
                .collect();
            let mut target = segment.target(extents.clone()).unwrap();
            assert_eq!(target.fill_from(&bytes), bytes.len());
            drop(target);
            let mut seen = Vec::with_capacity(bytes.len());
            let source = segment.source(extents.clone()).unwrap();
            source.visit(|run| seen.extend_from_slice(run));
            assert!(seen == bytes, "thread {thread} round {round}");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(thread));
        }
    });
}
