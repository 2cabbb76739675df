// Package tutorial tests the programs and pages of docs/tutorial: it extracts the files of each step,
// builds and runs them, and operates the pages in Chromium.
package tutorial
