//! H4: a put with two copies; one is published, the other's publish is delayed. A remove that asked
//! only who published would be answered while the other still holds the version. Owners of a
//! version are all nodes it was placed on, until each confirms absence.

use crate::host::ask::Ask;
use crate::script::{Played, Script, batch_of};
use crate::setup::{Setup, UNIT};
use snowskin_types::Millis;
use snowskin_types::call::PutMode;

pub(super) fn setup() -> Setup {
    Setup {
        replicas_max: 2,
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let told = s.hold(batch_of(0));
    let ask = Ask::Put {
        key: 0,
        size: UNIT,
        mode: PutMode::IfAbsent,
        replicas: 2,
        prefer: None,
        timeout: Millis(9000),
    };
    s.begin_call(0, ask);
    s.caught(told, "the first node publishes")?;
    s.until("the second copy is visible", |w| w.current(0).is_some())?;
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.run(2500)?;
    s.still_waits(1, "a node that it was placed on has not confirmed absence")?;
    s.restart_master()?;
    s.take(told);
    s.registered()?;
    s.run(2500)?;
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.removed(1)?;
    s.run(1000)?;
    s.misses(1, 0)
}
