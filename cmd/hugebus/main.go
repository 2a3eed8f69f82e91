// Command hugebus is the broker of the bus and everything around it: topics, publishing and reading from a shell, the
// TCP ingress, a doctor for the machine, and a demonstration. See hugebus --help.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})) }
