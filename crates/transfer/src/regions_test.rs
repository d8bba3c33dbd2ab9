//! Who may use which bytes, and when they are the process's own again.

use super::*;

const EPOCH: Epoch = Epoch(5);

fn range(region: RegionId, offset: u64, len: u64) -> RangeRequest {
    RangeRequest {
        epoch: EPOCH,
        region: region.0,
        offset,
        len,
    }
}

fn registered(access: RegionAccess) -> (Regions, RegionId) {
    let regions = Regions::new(EPOCH, 2);
    let segment = Segment::anonymous(1000).unwrap();
    let id = regions.register(segment, access).unwrap();
    (regions, id)
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn every_way_to_be_outside_is_refused_with_its_code_and_figures() {
    let (regions, id) = registered(RegionAccess::Both);
    let code = |range: RangeRequest, way| regions.try_begin(&range, way).unwrap_err().code;
    let other_life = RangeRequest {
        epoch: Epoch(4),
        ..range(id, 0, 10)
    };
    assert_eq!(code(other_life, Way::Read), Code::ReplicaGone);
    assert_eq!(
        code(range(RegionId(99), 0, 10), Way::Read),
        Code::SegmentNotFound
    );
    for (offset, len) in [(0, 1001), (1000, 1), (999, 2), (u64::MAX, 2), (0, 0)] {
        assert_eq!(code(range(id, offset, len), Way::Read), Code::InvalidRead);
        let failure = regions
            .try_begin(&range(id, offset, len), Way::Write)
            .unwrap_err();
        assert_eq!(failure.code, Code::InvalidParams);
        let detail = failure.detail.unwrap();
        assert_eq!(
            (detail.wanted, detail.largest),
            (offset.saturating_add(len), 1000)
        );
    }
    assert!(
        regions
            .try_begin(&range(id, 999, 1), Way::Write)
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_region_is_used_only_the_way_it_was_registered_for() {
    for (access, reads, writes) in [
        (RegionAccess::Read, true, false),
        (RegionAccess::Write, false, true),
        (RegionAccess::Both, true, true),
    ] {
        let (regions, id) = registered(access);
        for (way, allowed) in [(Way::Read, reads), (Way::Write, writes)] {
            let result = regions.try_begin(&range(id, 0, 10), way);
            let code = result.map(|_| ()).map_err(|failure| failure.code);
            let wanted = if allowed {
                Ok(())
            } else {
                Err(Code::IllegalClient)
            };
            assert_eq!(code, wanted, "{access:?} {way:?}");
        }
    }
}

#[test]
fn writes_share_their_bytes_with_nobody_and_reads_with_reads() {
    let (regions, id) = registered(RegionAccess::Both);
    let begin = |offset, len, way| regions.try_begin(&range(id, offset, len), way).unwrap();
    let read = begin(100, 100, Way::Read).unwrap();
    let second = begin(150, 100, Way::Read).unwrap();
    assert!(begin(199, 1, Way::Write).is_none());
    assert!(begin(0, 101, Way::Write).is_none());
    let before = begin(0, 100, Way::Write).unwrap();
    assert!(begin(0, 1, Way::Read).is_none() && begin(99, 5, Way::Write).is_none());
    drop(read);
    assert!(begin(150, 1, Way::Write).is_none());
    drop(second);
    let write = begin(100, 150, Way::Write).unwrap();
    assert_eq!(regions.operations(id), 2);
    drop((before, write));
    assert_eq!(regions.operations(id), 0);
}

#[test]
fn an_operation_waits_for_the_one_in_its_way_and_not_for_ever() {
    run(async {
        let (regions, id) = registered(RegionAccess::Both);
        let first = regions.begin(&range(id, 0, 10), Way::Write).await.unwrap();
        let wanted = range(id, 9, 10);
        let second = regions.begin(&wanted, Way::Write);
        let (second, ()) = tokio::join!(second, async { drop(first) });
        let second = second.unwrap();
        let busy = regions
            .begin(&range(id, 18, 1), Way::Read)
            .await
            .unwrap_err();
        assert_eq!(busy.code, Code::ObjectReplicaBusy);
        drop(second);
    });
}

#[test]
fn a_region_in_use_is_taken_back_only_when_it_is_quiet() {
    run(async {
        let (regions, id) = registered(RegionAccess::Both);
        let patience = Duration::from_secs(60);
        let first = regions.begin(&range(id, 0, 10), Way::Write).await.unwrap();
        let Ok(Reached::Direct(source)) = first.target() else {
            panic!("a segment is used in place");
        };
        let gone = regions.deregister(id, patience);
        let late = async {
            // It is closed by now: the other future was polled first.
            let failure = regions.try_begin(&range(id, 500, 1), Way::Read);
            assert_eq!(failure.unwrap_err().code, Code::SegmentNotFound);
            assert_eq!(regions.count(), 1);
            drop(source);
            drop(first);
        };
        let (gone, ()) = tokio::join!(gone, late);
        gone.unwrap();
        assert_eq!(regions.count(), 0);
        let again = regions.deregister(id, patience).await;
        assert_eq!(again, Err(RegionsError::Unknown { region: id }));
    });
}

#[test]
fn an_operation_that_outstays_is_cut_and_one_that_ignores_it_is_told_of() {
    run(async {
        let (regions, id) = registered(RegionAccess::Both);
        let stubborn = regions.begin(&range(id, 0, 10), Way::Write).await.unwrap();
        let error = regions.deregister(id, Duration::ZERO).await.unwrap_err();
        assert!(stubborn.cut().is_cancelled());
        let wanted = RegionsError::InUse {
            region: id,
            operations: 1,
        };
        assert_eq!(error, wanted);
        assert_eq!(regions.count(), 1);
        drop(stubborn);
        regions.deregister(id, Duration::ZERO).await.unwrap();
    });
}

#[test]
fn regions_are_bounded_and_a_memory_is_in_one_of_them_only() {
    let (regions, first) = registered(RegionAccess::Read);
    let segment = Segment::anonymous(10).unwrap();
    let second = regions.register(segment.clone(), RegionAccess::Read);
    let second = second.unwrap();
    assert_ne!(first, second);
    let full = regions.register(Segment::anonymous(10).unwrap(), RegionAccess::Read);
    assert_eq!(full, Err(RegionsError::Full { max: 2 }));
    run(regions.deregister(first, Duration::ZERO)).unwrap();
    let twice = regions.register(segment, RegionAccess::Both);
    assert_eq!(twice, Err(RegionsError::Twice { region: second }));
    let third = regions.register(Segment::anonymous(10).unwrap(), RegionAccess::Read);
    assert!(third.unwrap() > second, "numbers are never given twice");
}
