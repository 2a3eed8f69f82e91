// Package report turns what measurements say into what people and programs read:
// histograms into percentiles, rounds into medians with their spread, results into a
// table or JSON.
package report
