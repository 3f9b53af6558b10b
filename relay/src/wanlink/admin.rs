//! The link's admin port: `POST /fault/{cut,stall,refuse,clear}`, `POST /link?delay_ms=..`, `GET /stats`, `GET /live`, `GET /ready`.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::Link;
use super::conditions::Fault;
use crate::http::{Answer, Head};

/// Answers one request; every change is answered with the stats after it.
pub fn answer(link: &Link, head: &Head) -> Answer {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    match (head.method.as_str(), path) {
        ("GET", "/live") => return Answer::text(200, "live"),
        ("GET", "/ready") => return Answer::text(200, "ready"),
        ("GET", "/stats") => {}
        ("POST", "/fault/cut") => link.cut(),
        ("POST", "/fault/stall") => link.set_fault(Fault::Stall),
        ("POST", "/fault/refuse") => link.set_fault(Fault::Refuse),
        ("POST", "/fault/clear") => link.set_fault(Fault::None),
        ("POST", "/link") => {
            if let Err(problem) = change(link, query) {
                return Answer::text(400, &problem);
            }
        }
        _ => return Answer::text(404, "try POST /fault/{cut,stall,refuse,clear}, POST /link, GET /stats"),
    }
    stats(link)
}

fn change(link: &Link, query: &str) -> Result<(), String> {
    let settings = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = settings.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let changed = link.conditions.borrow().with(pairs)?;
    link.set_conditions(changed);
    Ok(())
}

fn stats(link: &Link) -> Answer {
    let conditions = *link.conditions.borrow();
    Answer::json(&json!({
        "fault": link.fault.borrow().name(),
        "delay_ms": conditions.delay.as_secs_f64() * 1e3,
        "jitter_ms": conditions.jitter.as_secs_f64() * 1e3,
        "rate_mbit": conditions.rate_bps.unwrap_or(0.0) / 1e6,
        "connections_open": link.connections_open.load(Ordering::Relaxed),
        "connections_total": link.connections_total.load(Ordering::Relaxed),
        "bytes_forward": link.forward.delivered_bytes(),
        "bytes_backward": link.backward.delivered_bytes(),
    }))
}
