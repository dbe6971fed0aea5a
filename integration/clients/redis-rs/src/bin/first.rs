//! Works while it holds a lock. cargo add redis uuid --features uuid/v4; cargo run redis://localhost:6380 orders page1 page2
use redis::cmd;
use std::{error::Error, thread::sleep, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let (url, name, id) = (&args[1][..], &args[2], uuid::Uuid::new_v4().to_string());
    let mut r = redis::Client::open(url)?.get_connection()?;
    r.set_read_timeout(Some(Duration::from_secs(15)))?; // longer than BLOCK
    // Keep one of these two lines. The first takes a lease: it may be said over any connection, and ends 30 s after the last RENEW. The
    // second takes the lock for this connection, which nobody else may use: lockproxy renews it, and frees it when the program dies.
    let (owner, lease): (&[&str], &[&str]) = (&["OWNER", &id], &["EX", "30"]);
    // let (owner, lease): (&[&str], &[&str]) = (&[], &[]);

    if !cmd("LOCK").arg(name).arg(owner).arg(lease).arg("BLOCK").arg(10_000).query::<bool>(&mut r)? {
        return Err(format!("{name}: somebody else has it").into());
    }
    let worked = args[3..].iter().try_for_each(|page| -> Result<(), Box<dyn Error>> {
        cmd("RENEW").arg(name).arg(owner).arg(lease).exec(&mut r)?; // every 10 s at least; an error when the lock is lost
        println!("{page}");
        sleep(Duration::from_secs(1)); // your work
        Ok(())
    });
    let given_back = cmd("UNLOCK").arg(name).arg(owner).exec(&mut r);
    worked?; // somebody else may have the lock, or your work has failed
    Ok(given_back?)
}
