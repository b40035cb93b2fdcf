package kube

// AddressClass is the loadBalancerClass of Services with addresses that nodes hold.
const AddressClass = "underlay.dev/address"
