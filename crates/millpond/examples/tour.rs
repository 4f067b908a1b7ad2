//! A tour: two streams, one wrong order that is refused, and the same made right.
//!
//! Run with `cargo run -p millpond --example tour`.

use millpond::{Device, HostConfig, MIB, PoolConfig};

fn main() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let pool = device.pool(PoolConfig::default().release_threshold(16 * MIB))?;
    let (left, right) = (device.stream()?, device.stream()?);

    let x = left.alloc::<f32>(&pool, 1024)?; // exists from this point of `left` on
    x.set_name("x");
    left.launch(x.write(), |x| x.fill(1.0))?; // declaring an access hands you the slice

    // Nothing makes `right` wait for `left`: refused before it runs.
    if let Err(refused) = right.launch(x.read(), |_| ()) {
        println!("error: {}\n", refused.report());
    }

    right.wait(&left.record()?)?; // an event orders it
    let y = right.alloc::<f32>(&pool, 1024)?;
    right.launch((x.read(), y.write()), |(x, y)| y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x))?;

    // `left` does not wait for `right`: a free there is refused, and returns `x`.
    let x = match left.free(x) {
        Err(refused) => {
            println!("error: {}\n", refused.report());
            refused.buffer
        }
        Ok(()) => return Ok(()),
    };
    right.free(x)?; // after the launch, on the stream of the launch

    let y = right.copy_to_host(y.read())?;
    println!("y[0] = {}, and {} more like it", y[0], y.iter().filter(|y| **y == 2.0).count() - 1);
    println!("{:?}", pool.statistics());
    Ok(())
}
