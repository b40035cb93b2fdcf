package kube

import "time"

// DefaultLease is upstream's default of the time for which a lease lasts.
const DefaultLease = 15 * time.Second
