// Package schedule tests node IPAM and routes together: the real controllers of both, in managers
// that follow each other as leaders, on one API server that keeps resource versions and one
// simulated cloud, in one process and on virtual time. A schedule is a random sequence of changes
// of Nodes, servers and foreign routes, of failing requests and changes of leadership, all from one
// seed, and the invariants are checked at every change of a Node or of the route table.
//
// Run one schedule again, with its history:
//
//	go test ./test/schedule -run TestSchedules -first-seed 17 -schedules 1 -history
//
// It must never decide anything for the controllers, and never excuse behavior that the design does
// not allow: each tolerance is defined in invariants_test.go.
package schedule
