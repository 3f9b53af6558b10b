//! What the link is like at a moment: delay, jitter, rate, and a fault if one is on.

use std::time::Duration;

/// Longest delay or jitter, in milliseconds; far more than any path on this planet.
const MS_MAX: f64 = 60_000.0;

/// Delay, jitter and rate of each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// One-way delay.
    pub delay: Duration,
    /// Extra one-way delay, uniform between 0 and this.
    pub jitter: Duration,
    /// Bits per second of each direction, shared by all connections; `None` is unlimited.
    pub rate_bps: Option<f64>,
}

/// What is wrong with the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Nothing is delivered and no connection is made, but none is closed: a path that went black.
    Stall,
    /// New connections are reset; open ones go on.
    Refuse,
}

impl Fault {
    /// The name in `/stats`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stall => "stall",
            Self::Refuse => "refuse",
        }
    }
}

impl Conditions {
    /// These conditions with some settings replaced: `delay_ms`, `jitter_ms`, `rate_mbit` (0 is unlimited).
    ///
    /// # Errors
    /// The first unknown name or bad value; nothing is changed then.
    pub fn with<'a>(mut self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        for (name, text) in settings {
            let value: f64 = text.parse().map_err(|_| format!("{name}: `{text}` is not a number"))?;
            match name {
                "delay_ms" => self.delay = milliseconds(name, value)?,
                "jitter_ms" => self.jitter = milliseconds(name, value)?,
                "rate_mbit" if value == 0.0 => self.rate_bps = None,
                "rate_mbit" if value.is_finite() && value > 0.0 => self.rate_bps = Some(value * 1e6),
                "rate_mbit" => return Err(format!("rate_mbit: {value} is not a rate")),
                _ => return Err(format!("unknown setting `{name}`")),
            }
        }
        Ok(self)
    }
}

fn milliseconds(name: &str, value: f64) -> Result<Duration, String> {
    if (0.0..=MS_MAX).contains(&value) {
        Ok(Duration::from_secs_f64(value / 1e3))
    } else {
        Err(format!("{name}: {value} is not between 0 and {MS_MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_replace_only_what_they_name() {
        let link = Conditions::default().with([("delay_ms", "43"), ("rate_mbit", "100")]).unwrap();
        let changed = link.with([("jitter_ms", "0.5")]).unwrap();
        let expected = Conditions {
            delay: Duration::from_millis(43),
            jitter: Duration::from_micros(500),
            rate_bps: Some(1e8),
        };
        assert_eq!(changed, expected);
    }

    #[test]
    fn rate_zero_is_unlimited() {
        let limited = Conditions::default().with([("rate_mbit", "1")]).unwrap();
        assert_eq!(limited.with([("rate_mbit", "0")]).unwrap().rate_bps, None);
    }

    #[test]
    fn a_bad_setting_is_refused() {
        for setting in [
            ("delay_ms", "-1"),
            ("delay_ms", "NaN"),
            ("delay_ms", "60001"),
            ("rate_mbit", "inf"),
            ("rate_mbit", "-1"),
            ("rate", "1"),
            ("jitter_ms", ""),
        ] {
            assert!(Conditions::default().with([setting]).is_err(), "{setting:?}");
        }
    }
}
