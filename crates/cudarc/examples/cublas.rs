//! cuBLAS on Millpond's memory: a matrix product, at once and in a graph. cuBLAS's own workspace is from the pool as
//! well.
//!
//! Run it with `cargo run --release -p millpond-cudarc --example cublas`. Without a CUDA device it says so.

mod common;

use std::sync::Arc;

use common::{Outcome, report};
use cudarc::cublas::sys::{cublasOperation_t::CUBLAS_OP_N, cublasSetWorkspace_v2};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig};
use cudarc::driver::{CudaStream, DevicePtrMut};
use millpond_cudarc::millpond::graph::Instantiate;
use millpond_cudarc::millpond::{Buffer, MIB};
use millpond_cudarc::{Context, In, Out, Stream};

/// The rows and columns of all matrices.
const N: usize = 512;
/// The workspace of cuBLAS, of the size that its documentation advises.
const WORKSPACE: usize = 32 * MIB as usize;

fn main() -> Outcome {
    match common::context() {
        Some(context) if common::load("cublas") => show(&context),
        _ => Ok(()),
    }
}

fn show(context: &Context) -> Outcome {
    let (left, pool) = (context.stream()?, context.device().default_pool());
    let blas = CudaBlas::new(left.cudarc().clone())?;
    // cuBLAS's workspace is from the pool: otherwise it would allocate during the capture.
    let workspace = left.alloc::<u8>(&pool, WORKSPACE)?;
    left.run(workspace.write(), |s, mut workspace| {
        let (address, _order) = workspace.device_ptr_mut(s);
        // SAFETY: the memory has that size, and every call below declares it.
        unsafe { cublasSetWorkspace_v2(*blas.handle(), address as *mut _, WORKSPACE) }.result()
    })?;

    // Small integers, so that the product is exact.
    let (a_host, b_host) = (matrix(3), matrix(5));
    let a = left.alloc::<f32>(&pool, N * N)?;
    let b = left.alloc::<f32>(&pool, N * N)?;
    left.run(a.write(), |s, mut a| s.memcpy_htod(&a_host, &mut a))?;
    left.run(b.write(), |s, mut b| s.memcpy_htod(&b_host, &mut b))?;

    let c = left.alloc::<f32>(&pool, N * N)?;
    multiply(&left, &blas, &workspace, 0.0, [&a, &b, &c])?;
    let expected = product(&a_host, &b_host);
    report("c = a b", left.run(c.read(), |s, c| s.clone_dtoh(&c))? == expected)?;

    // The same in a graph, with memory that only the graph uses: d = a b, c += a d.
    left.begin_capture()?;
    let d = left.alloc::<f32>(&pool, N * N)?;
    multiply(&left, &blas, &workspace, 0.0, [&a, &b, &d])?;
    multiply(&left, &blas, &workspace, 1.0, [&a, &d, &c])?;
    left.free(d)?;
    let graph = left.end_capture()?;
    let exec = graph.instantiate(Instantiate::default())?;
    let step = product(&a_host, &expected);
    let mut sum = expected;
    for _ in 0..3 {
        exec.launch(&left)?;
        sum.iter_mut().zip(&step).for_each(|(sum, step)| *sum += step);
    }
    let found = left.run(c.read(), |s, c| s.clone_dtoh(&c))?;
    let is_near = |(found, sum): (&f32, &f32)| (found - sum).abs() <= 1e-5 * sum.abs();
    report("c += a (a b), three launches of a captured graph", found.iter().zip(&sum).all(is_near))?;

    drop(exec);
    for buffer in [a, b, c] {
        left.free(buffer)?;
    }
    left.free(workspace)?;
    report("nothing is live", pool.statistics().used_bytes == 0)
}

/// Declares and submits c = a b + beta c. In a capture it becomes a node.
fn multiply(
    stream: &Stream,
    blas: &CudaBlas,
    workspace: &Buffer<u8>,
    beta: f32,
    [a, b, c]: [&Buffer<f32>; 3],
) -> millpond_cudarc::Result<()> {
    let uses = (a.read(), b.read(), c.write(), workspace.write());
    let gemm = |_: &Arc<CudaStream>, (a, b, mut c, _): (In<'_, f32>, In<'_, f32>, Out<'_, f32>, Out<'_, u8>)| {
        // SAFETY: the matrices have the sizes of the configuration.
        unsafe { blas.gemm(config(beta), &a, &b, &mut c) }
    };
    // SAFETY: the program keeps everything else that a launch of the graph uses until the graph is gone.
    unsafe { stream.enqueue(uses, gemm) }
}

fn config(beta: f32) -> GemmConfig<f32> {
    let n = N as i32;
    GemmConfig { transa: CUBLAS_OP_N, transb: CUBLAS_OP_N, m: n, n, k: n, alpha: 1.0, lda: n, ldb: n, beta, ldc: n }
}

fn matrix(seed: usize) -> Vec<f32> {
    (0..N * N).map(|i| ((i * seed + i / N) % 4) as f32).collect()
}

/// The product with the layout of cuBLAS: matrices by columns.
fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut c = vec![0.0; N * N];
    for column in 0..N {
        for k in 0..N {
            let factor = b[column * N + k];
            let from = &a[k * N..][..N];
            c[column * N..][..N].iter_mut().zip(from).for_each(|(c, a)| *c += factor * a);
        }
    }
    c
}
