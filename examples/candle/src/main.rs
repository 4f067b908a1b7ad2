//! A small model, trained with candle. With the feature `cuda` the memory of all tensors is Millpond's, by one call.
//!
//! `cargo run --release` runs it on the CPU; `cargo run --release --features cuda` on a CUDA device (needs nvcc).

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear, loss::mse, seq};

const INPUTS: usize = 64;
const HIDDEN: usize = 512;
const ROWS: usize = 256;
const STEPS: usize = 200;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // The one line that takes the memory over. It comes before the first tensor.
    #[cfg(feature = "cuda")]
    let pool = match millpond_cudarc::interpose::pool(0) {
        Ok(pool) => pool,
        Err(error) => {
            println!("nothing to show: there is no CUDA device here ({error})");
            return Ok(());
        }
    };
    let device = Device::cuda_if_available(0)?;
    println!("on {:?}", device.location());
    train(&device)?;

    #[cfg(feature = "cuda")]
    {
        let figures = pool.statistics();
        println!(
            "from Millpond: at most {} B used, {} B reserved",
            figures.used_high_bytes, figures.reserved_high_bytes
        );
        if figures.used_high_bytes == 0 {
            return Err("candle's memory did not come from Millpond".into());
        }
    }
    Ok(())
}

/// Learns a fixed function of random rows.
fn train(device: &Device) -> Result<()> {
    let variables = VarMap::new();
    let vs = VarBuilder::from_varmap(&variables, DType::F32, device);
    let model = seq()
        .add(linear(INPUTS, HIDDEN, vs.pp("first"))?)
        .add(|x: &Tensor| x.relu())
        .add(linear(HIDDEN, HIDDEN, vs.pp("second"))?)
        .add(|x: &Tensor| x.gelu())
        .add(linear(HIDDEN, 1, vs.pp("last"))?);
    let mut optimizer = AdamW::new(variables.all_vars(), ParamsAdamW { lr: 1e-3, ..Default::default() })?;
    let (mut first, mut last) = (None, 0.0);
    for step in 0..STEPS {
        let x = Tensor::randn(0.0_f32, 1.0, (ROWS, INPUTS), device)?;
        let y = x.sqr()?.mean_keepdim(1)?;
        let loss = mse(&model.forward(&x)?, &y)?;
        optimizer.backward_step(&loss)?;
        last = loss.to_scalar::<f32>()?;
        first.get_or_insert(last);
        if step % 50 == 0 {
            println!("step {step:3}: loss {last:.4}");
        }
    }
    let first = first.unwrap_or(last);
    println!("loss {first:.4} -> {last:.4}");
    if last < first / 2.0 { Ok(()) } else { candle_core::bail!("it learned nothing") }
}
