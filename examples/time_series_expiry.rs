//! Measurements by time, which go by themselves when they are old.
//!
//! `cargo run --example time_series_expiry`

#![expect(clippy::disallowed_methods, reason = "a program of its own, and not to be replayed")]

use std::time::{Duration, SystemTime};

use lithedb::{Codec, Db, Durability, KeyspaceOptions, Result, WriteBatch};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Sensor and time, so that the measurements of a sensor lie together, in the order of time.
fn key(sensor: u16, millis: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&sensor.to_be_bytes());
    key[2..].copy_from_slice(&millis.to_be_bytes());
    key
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::open(dir.path().join("weather.lithe"))?;
    // Much is written and little is read: Lsm. All of it is there for a day.
    let options = KeyspaceOptions::lsm().codec(Codec::Lz4).ttl(24 * HOUR);
    let measurements = db.create_keyspace("measurements", options)?;

    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = now.as_millis() as u64;
    for minute in (0..600).rev() {
        let mut batch = WriteBatch::new();
        for sensor in 0..10 {
            let celsius = 15.0 + f64::from(sensor) - minute as f64 / 100.0;
            batch.put(&measurements, key(sensor, now - minute * 60_000), celsius.to_le_bytes());
        }
        // A power cut may take the last ones: nobody minds, and it is faster.
        db.write_with(batch, Durability::Buffered)?;
    }
    // One that is wrong, and is to go at once.
    measurements.put_with_ttl(key(3, now + 1), 99.0_f64.to_le_bytes(), Duration::from_millis(1))?;
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(measurements.get(key(3, now + 1))?, None);

    // The last hour of sensor 3: a range.
    let from = key(3, now - 60 * 60_000 + 1);
    let mut sum = 0.0;
    let mut count = 0;
    for entry in measurements.range(from..key(4, 0)) {
        sum += entry?.value[..].try_into().map_or(0.0, f64::from_le_bytes);
        count += 1;
    }
    println!(
        "sensor 3, the last hour: {count} measurements, {:.2} degrees",
        sum / f64::from(count)
    );
    assert_eq!(count, 60);

    // The newest one is the last of its range.
    let newest = measurements.range(key(7, 0)..key(8, 0)).next_back().transpose()?;
    let newest = newest.expect("sensor 7 has measured");
    println!("sensor 7, the newest: expires in a day: {}", newest.expires_at().is_some());
    println!("{} in all", measurements.len()?);
    Ok(())
}
