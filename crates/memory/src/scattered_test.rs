use super::*;
use proptest::prelude::*;

fn region(bytes: &mut [u8]) -> ExternalRegion {
    let address = bytes.as_mut_ptr().expose_provenance();
    // SAFETY: the tests keep the bytes while the region lives and use them only between lists.
    unsafe { ExternalRegion::new(address, bytes.len() as u64, None) }.unwrap()
}

fn seen(source: &SourceSlices<'_>) -> Vec<u8> {
    let mut seen = Vec::new();
    source.visit(|run| seen.extend_from_slice(run));
    seen
}

#[test]
fn neighbours_become_one_part_and_one_share() {
    let mut bytes = vec![7u8; 100];
    let region = region(&mut bytes);
    let mut list = Scattered::new();
    for at in 0..10 {
        list.push(&region, at * 10, 10).unwrap();
    }
    list.push(&region, 100, 0).unwrap();
    assert_eq!(
        (list.len(), list.parts(), region.outstanding()),
        (100, 1, 1)
    );
    list.push(&region, 0, 5).unwrap();
    assert_eq!(
        (list.len(), list.parts(), region.outstanding()),
        (105, 2, 1)
    );
    drop(list);
    assert_eq!(region.outstanding(), 0);
}

#[test]
fn a_lent_list_keeps_its_regions_while_more_is_pushed() {
    let (mut a, mut b) = (vec![1u8; 8], vec![2u8; 8]);
    let (first, second) = (region(&mut a), region(&mut b));
    let mut list = Scattered::new();
    list.push(&first, 2, 4).unwrap();
    let source = list.source();
    list.push(&second, 0, 2).unwrap();
    drop(list);
    assert_eq!((first.outstanding(), second.outstanding()), (1, 0));
    assert_eq!(seen(&source), [1; 4]);
    drop(source);
    assert_eq!(first.outstanding(), 0);
}

#[test]
fn overlapping_parts_may_be_sent_but_not_received_into() {
    let mut bytes = [0u8, 1, 2, 3, 4, 5, 6, 7];
    let region = region(&mut bytes);
    let mut list = Scattered::new();
    list.push(&region, 4, 4).unwrap();
    list.push(&region, 0, 3).unwrap();
    assert_eq!(list.overlap(), None);
    list.push(&region, 2, 2).unwrap();
    assert_eq!(seen(&list.source()), [4, 5, 6, 7, 0, 1, 2, 2, 3]);
    assert_eq!(list.overlap(), Some(7..9));
    let error = list.target(9).unwrap_err();
    assert!(matches!(error, MemoryError::Overlap { offset: 7, len: 2 }));
    assert!(list.target(7).is_ok());
}

#[test]
fn what_is_outside_is_refused() {
    let mut bytes = vec![0u8; 10];
    let region = region(&mut bytes);
    let mut list = Scattered::new();
    assert!(list.push(&region, 8, 3).is_err());
    assert!(list.push(&region, u64::MAX, 2).is_err());
    assert!(list.is_empty());
    list.push(&region, 1, 5).unwrap();
    assert!(list.target(6).is_err());
    assert!(list.sub(3, 3).is_err());
    assert_eq!(list.sub(5, 0).unwrap().len(), 0);
}

proptest! {
    #[test]
    fn cuts_are_the_same_bytes_as_cuts_of_the_whole(
        ranges in prop::collection::vec((0usize..3, 0u64..64, 0u64..64), 0..20),
        offset in 0u64..700,
        len in 0u64..700,
    ) {
        let mut memory: Vec<Vec<u8>> = (0..3u8)
            .map(|nth| (0..128).map(|at| nth * 80 + (at % 79) as u8).collect())
            .collect();
        let copies = memory.clone();
        let regions: Vec<ExternalRegion> = memory.iter_mut().map(|bytes| region(bytes)).collect();
        let mut list = Scattered::new();
        let mut whole = Vec::new();
        for (nth, start, bytes) in ranges {
            list.push(&regions[nth], start, bytes).unwrap();
            whole.extend_from_slice(&copies[nth][start as usize..(start + bytes) as usize]);
        }
        prop_assert_eq!(list.len(), whole.len() as u64);
        prop_assert_eq!(seen(&list.source()), whole.clone());
        match list.sub(offset, len) {
            Ok(cut) => {
                let range = offset as usize..(offset + len) as usize;
                prop_assert_eq!(seen(&cut.source()), &whole[range]);
            }
            Err(_) => prop_assert!(offset + len > whole.len() as u64),
        }
    }
}
