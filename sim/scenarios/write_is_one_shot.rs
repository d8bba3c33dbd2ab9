//! H5: a late or doubled write request. (a) A version was put, removed and retired; a copy of its
//! write arrives. (b) The order to retire overtakes the write. Both times the node refuses the
//! version for ever in this life.

use crate::host::ask::{Ask, Outcome};
use crate::packet::{Packet, Proc};
use crate::script::{Played, Script, put_ask, write_to};
use crate::setup::Setup;
use snowskin_types::Millis;
use snowskin_types::call::PutMode;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    // (a)
    let write = s.hold(write_to(0));
    s.begin_call(0, put_ask(0, 0, PutMode::IfAbsent));
    s.caught(write, "the write is sent")?;
    let mut held = s.take(write);
    let Some(late) = held.pop() else {
        return Err("no write was caught".to_owned());
    };
    s.world.deliver(late.from, late.to, late.packet.clone());
    let v1 = s.written(0)?;
    s.begin_call(
        0,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.removed(0)?;
    s.world.deliver(late.from, late.to, late.packet);
    s.run(2000)?;
    if s.holds(0, v1) {
        return Err("the doubled write brought the removed version back".to_owned());
    }
    s.misses(0, 0)?;
    // (b)
    let write = s.hold(write_to(0));
    let Ask::Put {
        key,
        size,
        mode,
        replicas,
        prefer,
        ..
    } = put_ask(1, 0, PutMode::IfAbsent)
    else {
        return Err("not a put".to_owned());
    };
    let timeout = Millis(600);
    s.begin_call(
        0,
        Ask::Put {
            key,
            size,
            mode,
            replicas,
            prefer,
            timeout,
        },
    );
    s.caught(write, "the write is sent")?;
    match s.outcome(0)? {
        Outcome::Put(Err(_)) => {}
        other => return Err(format!("the put without a write ended with {other:?}")),
    }
    s.run(1500)?;
    for late in s.take(write) {
        if let (Proc::Node(0), Packet::Write { .. }) = (late.to, &late.packet) {
            s.world.deliver(late.from, late.to, late.packet);
        }
    }
    s.run(2000)?;
    s.misses(0, 1)?;
    let used: u64 = s.state().stores.iter().flatten().map(|v| v.used).sum();
    if used != 0 {
        return Err(format!(
            "{used} bytes are held by versions that were given up"
        ));
    }
    Ok(())
}
