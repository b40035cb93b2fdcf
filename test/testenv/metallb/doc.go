// Package metallb runs MetalLB's controller and speakers in a lab, as its own manifest deploys them:
// with the permissions that the manifest gives, arguments and environment of its Deployment and
// DaemonSet, and the key by which the speakers talk to each other. It is what addresses on one
// segment are measured beside.
//
// Only layer 2 is of use: the routing program FRR, by which the release speaks BGP, is not there.
package metallb
