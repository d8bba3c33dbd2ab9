//! H13: a replace was written under the old master, its publish was never answered. A new master in
//! its grace must not switch to it: readers may hold leases on the old version that it does not
//! know of.

use crate::script::{Played, Script, batch_with, put_ask};
use crate::setup::Setup;
use snowskin_types::call::PutMode;
use snowskin_types::link::NodeItem;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    s.reads(1, 0, v1)?;
    let told = s.hold(batch_with(1, |i| matches!(i, NodeItem::Publish { .. })));
    s.begin_call(0, put_ask(0, 1, PutMode::Replace));
    s.caught(told, "the new version is told")?;
    s.world.crash_master();
    s.run(100)?;
    s.take(told);
    s.world.start_master();
    let started = s.world.time;
    s.registered()?;
    while s.world.time - started < 900_000 {
        if s.world.current(0).is_some_and(|v| v != v1) {
            return Err("a never-acked version became current in the grace".to_owned());
        }
        s.reads(1, 0, v1)?;
        s.run(50)?;
    }
    s.run(3000)?;
    s.outcome(0)?;
    let Some(current) = s.world.current(0) else {
        return Err("neither version is left".to_owned());
    };
    s.reads(1, 0, current)
}
