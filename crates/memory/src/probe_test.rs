//! Which ranges are asked about. What the answers are is in `tests/gone.rs`.

use super::*;

#[test]
fn of_many_short_ranges_a_few_are_asked_about_while_the_region_is_known_to_be_whole() {
    let mut bytes = vec![0u8; 400_000];
    let address = bytes.as_mut_ptr().expose_provenance();
    // SAFETY: the vector outlives the region and is not used meanwhile.
    let region = unsafe { ExternalRegion::new(address, 400_000, None) }.unwrap();
    let ranges = |now: u64, len: u64| {
        let mut probes = Probes::new(Touch::Read);
        probes.now = now;
        for nth in 0..40 {
            probes.add(&region, nth * 10_000, len);
        }
        probes.due()
    };
    // Nothing is known yet.
    let due = ranges(5000, 9000);
    assert_eq!(due.due.len(), 40);
    due.ask().unwrap();
    let few = ALWAYS_SHORT as usize;
    assert_eq!(ranges(5000, 9000).due.len(), few);
    assert_eq!(ranges(5000 + FRESH_MS - 1, 9000).due.len(), few);
    assert_eq!(ranges(5000 + FRESH_MS, 9000).due.len(), 40);
    // Neighbours are one range, a long one here, which is always asked about.
    let due = ranges(5000, 10_000);
    assert_eq!((due.due.len(), due.due[0].2), (1, 400_000));
    // What was not whole is looked at again after a while only, and never relied on.
    region.watch().note(6000, false);
    assert!(!region.watch().is_due(6000) && region.watch().is_due(6000 + FRESH_MS));
    assert_eq!(ranges(6000, 9000).due.len(), 40);
    ranges(6000, 9000).ask().unwrap();
    assert!(!region.watch().is_whole(6000));
}
