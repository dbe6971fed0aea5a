//! redis-rs while Redis is lost: each line of the input is something to do, and "did ..." says what the application got. A connection
//! of redis-rs' is not made again by itself: the application does that when it is "ready".
use redis::{Client, Commands, Connection, RedisResult, cmd, pipe};
use std::{io::stdin, thread::sleep, time::Duration};

fn run(client: &Client, con: &mut Connection, op: &str, item: &str) -> RedisResult<()> {
    match op {
        "ready" => loop {
            match cmd("PING").query::<String>(con) {
                Ok(_) => return Ok(()),
                Err(_) => sleep(Duration::from_millis(50)),
            }
            if let Ok(new) = client.get_connection() {
                *con = new;
            }
        },
        "get" => con.get::<_, Option<String>>("k").map(|_| ()),
        "push" => con.rpush::<_, _, i64>("list", item).map(|_| ()),
        "pipeline" => pipe().rpush("list", item).ignore().get("k").query::<Vec<String>>(con).map(|_| ()),
        "multi" => pipe().atomic().rpush("list", item).ignore().get("k").query::<Vec<String>>(con).map(|_| ()),
        "blpop" => con.blpop::<_, Vec<String>>("queue", 0.0).map(|_| ()),
        _ => {
            let mut own = client.get_connection()?;
            let mut heard = own.as_pubsub();
            heard.subscribe("news")?;
            println!("heard");
            while heard.get_message()?.get_payload::<String>()? != "last" {}
            Ok(())
        }
    }
}

fn main() {
    let client = Client::open(format!("redis://{}/", std::env::var("LOCKPROXY_ADDR").expect("LOCKPROXY_ADDR"))).unwrap();
    let mut con = client.get_connection().unwrap();
    for line in stdin().lines() {
        let line = line.unwrap();
        let (op, item) = line.split_once(' ').unwrap_or((&line, ""));
        match run(&client, &mut con, op, item) {
            Ok(()) => println!("did ok"),
            Err(e) => println!("did {:?} {e}", e.kind()),
        }
    }
}
