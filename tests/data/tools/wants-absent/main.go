// Imports what no registry serves.
package main

import "example.test/absent"

func main() { absent.Do() }
