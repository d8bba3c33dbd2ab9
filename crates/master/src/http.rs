//! The HTTP port: figures, health and look-ups for people and scrapers.
//!
//! Runs on a thread of its own; what it asks goes the way of every other request, with a deadline.

use crate::hub::Hub;
use crate::metrics::{Scrape, Tally};
use crate::seats::{Seats, Visitor};
use crate::web::{self, Answer, Plain, Values};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, RawQuery, Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::{Value, json};
use snowskin_runtime::spawn::Cancel;
use snowskin_types::call::{Filter, Keys, Located, NodeState, Reply, Request};
use snowskin_types::error::Stage;
use snowskin_types::limits::METADATA_TIMEOUT;
use snowskin_types::object::{Place, Shape, Tier};
use snowskin_types::{Code, Failure, Key, Tenant};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// Keys asked of the directory at once by a listing.
const PAGE_KEYS: u32 = 1_000;
/// Keys of one `/batch_query_keys`.
const BATCH_MAX: usize = 1_000;
/// Answers under way get this long when the master stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until told to stop.
pub(crate) async fn serve(listener: TcpListener, hub: Arc<Hub>, stop: Cancel) {
    let listener = match listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpListener::from_std(listener))
    {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot serve the HTTP port");
            return;
        }
    };
    let listener = Seats::new(listener, hub.clone());
    let asked = stop.clone();
    let routes = routes(hub).into_make_service_with_connect_info::<Visitor>();
    let server = axum::serve(listener, routes)
        .with_graceful_shutdown(async move { asked.cancelled().await });
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_TIMEOUT).await;
    };
    tokio::select! {
        ended = async { server.await } => {
            if let Err(error) = ended {
                tracing::error!(%error, "the HTTP port ended");
            }
        }
        () = late => tracing::warn!("HTTP answers under way were cut off"),
    }
}

fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/get_all_segments", get(all_segments))
        .route("/query_segment", get(query_segment))
        .route("/get_all_keys", get(all_keys))
        .route("/query_key", get(query_key))
        .route("/batch_query_keys", get(batch_query_keys))
        .fallback(async || (StatusCode::NOT_FOUND, "404 Not Found"))
        .layer(middleware::from_fn_with_state(hub.clone(), count))
        .with_state(hub)
}

async fn count(
    State(hub): State<Arc<Hub>>,
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    request: HttpRequest,
    next: Next,
) -> Response {
    Tally::one(&hub.tally.http);
    visitor.asks();
    let response = next.run(request).await;
    // A listing is answered only when its last page has been taken.
    if response.body().size_hint().exact().is_some() {
        visitor.is_answered();
    }
    response
}

async fn metrics(State(hub): State<Arc<Hub>>) -> Response {
    let scrape = Scrape {
        figures: &hub.figures(),
        tally: &hub.tally,
        term: hub.term,
        rss_bytes: rss_bytes(),
    };
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        scrape.render(),
    )
        .into_response()
}

/// Resident memory; 0 where the system does not tell.
fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

async fn health(State(hub): State<Arc<Hub>>) -> Json<Value> {
    let ready = hub.ready();
    Json(json!({
        "status": "ok",
        "role": "leader",
        "ha_state": if ready { "serving" } else { "recovering" },
        "service_ready": ready,
        "leader_address": null,
        "view_version": null,
    }))
}

async fn readyz(State(hub): State<Arc<Hub>>) -> Response {
    if hub.ready() {
        "ready\n".into_response()
    } else {
        let text = "not ready: the inventories of known nodes are not in yet\n";
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

async fn all_segments(State(hub): State<Arc<Hub>>) -> String {
    let mut out = String::new();
    let segments = hub.figures().gauges.segments;
    for segment in segments.iter().filter(|s| s.state == NodeState::Alive) {
        out.push_str(&segment.address);
        out.push('\n');
    }
    out
}

async fn query_segment(State(hub): State<Arc<Hub>>, RawQuery(query): RawQuery) -> Answer<String> {
    let name = Values::parse(query.as_deref())?.one("segment")?;
    let segments = hub.figures().gauges.segments;
    let found = segments.iter().find(|s| s.address.as_bytes() == name);
    let Some(s) = found.filter(|s| s.state != NodeState::Gone) else {
        return Err(Plain(StatusCode::INTERNAL_SERVER_ERROR, "Failed to query segment").into());
    };
    Ok(format!("{}\n{}\n{}\n", s.address, s.used, s.capacity))
}

async fn all_keys(State(hub): State<Arc<Hub>>) -> Answer<Response> {
    // The first page is asked before the head is sent, so that its failure has a status.
    let (first, next) = page(&hub, None).await?;
    let rest = stream::unfold(next, move |after| {
        let hub = hub.clone();
        async move {
            match page(&hub, Some(after?)).await {
                Ok((lines, next)) => Some((Ok(lines), next)),
                // The peer sees a body that breaks off, never a short list that looks whole.
                Err(_) => Some((Err(std::io::Error::other("the listing broke off")), None)),
            }
        }
    });
    let first = stream::once(async move { Ok::<_, std::io::Error>(first) });
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// One page as lines, and the key after which the next begins, if any.
async fn page(hub: &Hub, after: Option<Vec<u8>>) -> Answer<(Bytes, Option<Vec<u8>>)> {
    let request = Request::List {
        tenant: Tenant::default(),
        filter: Filter::All,
        after,
        limit: PAGE_KEYS,
    };
    let (keys, more) = match hub.ask(request, METADATA_TIMEOUT).await {
        Reply::Listed { keys, more } => (keys, more),
        other => return Err(unexpected(other)),
    };
    let mut lines = String::with_capacity(keys.packed().len() + keys.len());
    for key in keys.iter() {
        web::escape_line(key, &mut lines);
    }
    let last = keys.len().checked_sub(1).and_then(|last| keys.get(last));
    let next = last.filter(|_| more).map(<[u8]>::to_vec);
    Ok((lines.into(), next))
}

async fn query_key(State(hub): State<Arc<Hub>>, RawQuery(query): RawQuery) -> Answer<Json<Value>> {
    let key = Values::parse(query.as_deref())?.one("key")?;
    let answer = locate(&hub, &key).await;
    answer.map_err(|error| error.about(&key))
}

async fn locate(hub: &Hub, key: &[u8]) -> Answer<Json<Value>> {
    let mut keys = Keys::new();
    keys.push(key).map_err(|e| web::bad_key(&e))?;
    let request = Request::Locate {
        tenant: Tenant::default(),
        keys,
        lease: None,
    };
    let (places, items) = match hub.ask(request, METADATA_TIMEOUT).await {
        Reply::Located { places, items } => (places, items),
        other => return Err(unexpected(other)),
    };
    match items.into_iter().next() {
        Some(Located::Found {
            shape, replicas, ..
        }) => {
            let in_memory = replicas.iter().filter(|r| r.tier == Tier::Dram);
            let data: Vec<Value> = in_memory
                .filter_map(|r| places.get(usize::from(r.place)))
                .map(|place| buffer(place, shape))
                .collect();
            Ok(Json(json!({ "success": true, "data": data })))
        }
        Some(Located::Failed(failure)) => Err(failure.into()),
        Some(Located::Missing) | None => {
            let text = "no such object";
            Err(Failure::new(Code::ObjectNotFound, Stage::Locate, text).into())
        }
    }
}

/// A replica in upstream's words. Addresses within a segment are known to its owner only.
fn buffer(place: &Place, shape: Shape) -> Value {
    json!({
        "size_": shape.size,
        "buffer_address_": 0,
        "protocol_": "tcp",
        "transport_endpoint_": &*place.address,
    })
}

async fn batch_query_keys(
    State(hub): State<Arc<Hub>>,
    RawQuery(query): RawQuery,
) -> Answer<Json<Value>> {
    let keys = Values::parse(query.as_deref())?.list("keys", BATCH_MAX)?;
    let mut data = serde_json::Map::new();
    for key in keys {
        let name = web::escape_key(&key);
        let whole = Key::new(&key).map_err(|e| web::bad_key(&e).about(&key))?;
        // Read-only: this question grants no lease.
        let request = Request::StatObject {
            tenant: Tenant::default(),
            key: whole,
        };
        let entry = match hub.ask(request, METADATA_TIMEOUT).await {
            Reply::Object(Some(object)) => {
                let of = |tier: Tier| -> Vec<Value> {
                    let readable = object.replicas.iter().filter(|r| {
                        r.state == "published" && r.version == object.version && r.tier == tier
                    });
                    readable.map(|r| buffer(&r.place, object.shape)).collect()
                };
                entry(None, of(Tier::Dram), of(Tier::Ssd))
            }
            Reply::Object(None) => entry(Some(Code::ObjectNotFound.name()), vec![], vec![]),
            Reply::Failed(failure) => entry(Some(failure.code.name()), vec![], vec![]),
            other => return Err(unexpected(other).about(&key)),
        };
        data.insert(name, entry);
    }
    Ok(Json(json!({ "success": true, "data": data })))
}

fn entry(error: Option<&str>, values: Vec<Value>, local_disk: Vec<Value>) -> Value {
    json!({
        "ok": error.is_none(),
        "error": error,
        "values": values,
        "disk_values": [],
        "local_disk_values": local_disk,
        "nof_values": [],
    })
}

fn unexpected(reply: Reply) -> web::Error {
    match reply {
        Reply::Failed(failure) => failure.into(),
        _ => Failure::new(
            Code::Internal,
            Stage::Session,
            "the directory gave another answer",
        )
        .into(),
    }
}
