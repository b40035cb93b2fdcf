// Package metallb runs MetalLB's controller and speakers in a lab, as its own manifest deploys
// them: with the permissions of the manifest, arguments and environment of its Deployment and
// DaemonSet, and the key for the speakers' connections to each other. Measurements of addresses on
// one segment compare with it.
//
// Only layer 2 works: the routing program FRR, which the release uses for BGP, is missing.
package metallb
