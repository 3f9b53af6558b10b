//! How many connections are let in: one cap for all, one for each client address; and the process's own file limit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Counts connections by client address; cheap to clone, all clones share the counts.
#[derive(Clone, Debug)]
pub struct Admission {
    counts: Arc<Mutex<Counts>>,
    max_total: usize,
    max_per_ip: usize,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// The right to hold one connection; gives its place back when dropped.
#[derive(Debug)]
pub struct Permit {
    counts: Arc<Mutex<Counts>>,
    ip: IpAddr,
}

impl Admission {
    /// Lets in at most `max_total` connections at once, `max_per_ip` of them from one address.
    pub fn new(max_total: usize, max_per_ip: usize) -> Self {
        Self {
            counts: Arc::default(),
            max_total,
            max_per_ip,
        }
    }

    /// Takes a place for a connection from `ip`, or `None` if either cap is reached.
    pub fn admit(&self, ip: IpAddr) -> Option<Permit> {
        let ip = ip.to_canonical();
        let mut counts = self.counts.lock();
        let from_ip = counts.by_ip.get(&ip).copied().unwrap_or(0);
        if counts.total >= self.max_total || from_ip >= self.max_per_ip {
            return None;
        }
        counts.total += 1;
        counts.by_ip.insert(ip, from_ip + 1);
        Some(Permit {
            counts: Arc::clone(&self.counts),
            ip,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.total -= 1;
        if let Entry::Occupied(mut held) = counts.by_ip.entry(self.ip) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

/// Raises the soft limit on open files to the hard one and returns it; `None` means unlimited or unchanged.
pub fn raise_file_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).ok()?;
    limit.maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn one_address_can_not_take_every_place() {
        let admission = Admission::new(10, 2);
        let held: Vec<_> = (0..3).filter_map(|_| admission.admit(A)).collect();
        assert_eq!(held.len(), 2);
        assert!(admission.admit(B).is_some());
    }

    #[test]
    fn the_total_is_capped_over_all_addresses() {
        let admission = Admission::new(2, 2);
        let _held = (admission.admit(A), admission.admit(B));
        assert!(admission.admit(B).is_none());
    }

    #[test]
    fn a_dropped_permit_frees_its_place_and_forgets_the_address() {
        let admission = Admission::new(1, 1);
        drop(admission.admit(A));
        assert!(admission.counts.lock().by_ip.is_empty());
        assert!(admission.admit(B).is_some());
    }

    #[test]
    fn an_address_mapped_into_ipv6_is_the_same_address() {
        let admission = Admission::new(10, 1);
        let _held = admission.admit(A);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert!(admission.admit(mapped).is_none());
    }
}
