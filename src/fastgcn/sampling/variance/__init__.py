"""How far a sampled convolution strays: Prop. 2, Thm 3 and Prop. 4 as plain functions.

One layer, before its nonlinearity. Â is (n, n); x (n,) or (n, d) holds the rows x(u) = H(u)W
that Â mixes; q (n,) is what vertices are drawn from; e = Âx is the truth. With u_1..u_t ~ q,

    y(v) = 1/t Σ_j Â(v,u_j) x(u_j) / q(u_j),      E y(v) = e(v)              (eq. 5 and 10)

and G = 1/s Σ_i y(v_i) is the average over s rows. Three variances are told apart:

* *independent* draws (`uniform_variance`, `optimal_variance`, `importance_variance`, all cases
  of `independent_variance`): what Prop. 2 to 4 state. The v_i are uniform over the vertices,
  and every v_i has its own u_1..u_t.
* a *shared* draw (`shared_variance`): what Alg. 1 and 2 do. One u_1..u_t serves every v_i, so
  the y(v_i) are correlated, and more rows do not average the error away.
* *per row* (`row_variance`): Σ_i Var y(v_i), the expected squared error of the rows, which is
  what the next layer sees. It is the same for shared and independent draws. The other ways to
  draw have theirs: `stratified_variance`, `systematic_variance`, `poisson_variance`,
  `successive_variance`; `ROW_VARIANCE` has them all by name.

The other members of the family are cases of these. Give `off_diagonal(adj)` for Â where the self
term is exact; `ladies_q(adj, rows)` or `neighbors_q(adj, q, rows)` for q where it comes from the
rows, with `along_entries` or `along_columns` for what lies where; h − h̄ for x where there is a
history.

Scale. The paper writes convolutions as integrals, ∫ Â(v,u) x(u) dP(u), which for P uniform on
the graph's vertices are *means* over u, where eq. 1, 5 and 10 have *sums*. Everything here is
on the scale of the sums: kernel nÂ in the integrals, hence n² times what eq. 6, 8 and 9 print.
With c(u) = ‖Â(:,u)‖ = √n·b(u), this turns n²·∫b² dP into Σ c², and so on.

For x of d columns a variance is the sum of those of the d components, E‖y − E y‖², and |x(u)|
is the Euclidean norm of a row.
"""

from fastgcn.sampling.variance.laws import (
    along_columns,
    along_entries,
    flat_q,
    importance_q,
    ladies_q,
    neighbors_q,
    off_diagonal,
    optimal_q,
    uniform_q,
)
from fastgcn.sampling.variance.variances import (
    ROW_VARIANCE,
    importance_variance,
    independent_variance,
    optimal_variance,
    poisson_variance,
    row_variance,
    shared_variance,
    stratified_variance,
    successive_variance,
    systematic_variance,
    uniform_variance,
)

__all__ = [
    "ROW_VARIANCE",
    "along_columns",
    "along_entries",
    "flat_q",
    "importance_q",
    "importance_variance",
    "independent_variance",
    "ladies_q",
    "neighbors_q",
    "off_diagonal",
    "optimal_q",
    "optimal_variance",
    "poisson_variance",
    "row_variance",
    "shared_variance",
    "stratified_variance",
    "successive_variance",
    "systematic_variance",
    "uniform_q",
    "uniform_variance",
]
