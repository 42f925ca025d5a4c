//! Several writes as one, over two keyspaces, and a snapshot that does not move meanwhile.
//!
//! `cargo run --example batch_and_snapshot`

use lithedb::{Db, Result, Snapshot, WriteBatch};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::open(dir.path().join("shop.lithe"))?;
    let orders = db.keyspace_or_create("orders")?;
    let by_customer = db.keyspace_or_create("orders by customer")?;

    let place = |number: u32, customer: &str| -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(&orders, number.to_be_bytes(), customer);
        // Two fields in one key: a 0 between them, which no name has.
        let key = [customer.as_bytes(), &[0], &number.to_be_bytes()].concat();
        batch.put(&by_customer, key, "");
        db.write(batch)?; // Both, or neither.
        Ok(())
    };
    place(1, "ada")?;
    place(2, "bob")?;

    let before = db.snapshot();
    place(3, "ada")?;
    orders.delete(1_u32.to_be_bytes())?;

    let count = |snapshot: &Snapshot| -> Result<(u64, u64)> {
        let of_ada = snapshot.prefix(&by_customer, "ada\0").count() as u64;
        Ok((snapshot.count::<&[u8]>(&orders, ..)?, of_ada))
    };
    let (orders_before, of_ada_before) = count(&before)?;
    let (orders_now, of_ada_now) = db.view(count)?;
    println!("before: {orders_before} orders, {of_ada_before} of them Ada's");
    println!("now: {orders_now} orders, and {of_ada_now} are listed as Ada's");
    assert_eq!((orders_before, of_ada_before), (2, 1));
    assert_eq!((orders_now, of_ada_now), (2, 2));
    Ok(())
}
