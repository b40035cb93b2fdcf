// Package netlab lays a whole cluster out in network namespaces, so that tests
// and the demo can send real packets through it: a real control plane, the
// simulated cloud, underlay-ccm, and machines, each with underlay-agent,
// kube-proxy and pods that the real CNI plugins attached.
//
// On the simulated cloud:
//
//	 API server, underlay-ccm, simulator        the namespace that Enter makes
//	=======+=================+===========      mgmt       192.168.250.0/24
//	       |                 |
//	 +-----+-----+     +-----+-----+
//	 | machine 1 |     | machine 2 | ...        pods hang below, by ptp
//	 +--+-----+--+     +--+-----+--+
//	    |     |private    |     |
//	    |     +---[ cloud router ]              10.0.0.0/8, by the network's routes
//	    |public           |
//	    +----[ internet ]-+                     192.0.2.N/32, 2001:db8:0:N::/64
//	               |
//	          [ outside ]                       198.51.100.2, 2001:db8:ffff::2
//
// The private interface has a /32, all traffic goes through the gateway, and
// there is no IPv6. The cloud router forwards by the simulated network's route
// table as it is at the moment, and drops what a server sends from an address
// that is neither its own nor in a prefix routed to it. The internet hands each
// server its address and its /64, and drops what is sent from others. It leads floating
// IPs to the server that has them: it asks for an IPv4 address by ARP, as users have seen
// the cloud do (github.com/metallb/metallb/issues/637), and routes an IPv6 net.
//
// A lab may have a vSwitch: a segment of dedicated servers, 10.1.0.0/16 with an MTU of
// 1400, whose gateway to the network is the cloud router. They have a public
// interface like cloud servers, with 2001:db8:d:N::/64, and "vswitch" in place of "private". A simulated Robot
// knows them, their public addresses and that they are in the vSwitch; the simulated
// cloud knows of the subnet, of no server in it, and whose their public addresses are.
// Failover addresses of the account are routed to the main address of the server that they
// are switched to, once Robot says that they are.
//
// Each load balancer of the simulated cloud is a host too, from its creation to
// its removal: on the internet with its public addresses, and at the cloud router
// while it is in the network. It carries connections as package balancer says, those
// to addresses of IPv6 from its own one, or from the simulator's IPv6Source, which is
// the newest load balancer's.
//
// On bare metal there is no cloud: the machines' interface "uplink" is on one
// segment, 192.0.2.0/24 and 2001:db8:1::/64, whose .1 and ::1 lead outside. Hosts that
// are none of the cluster's can be plugged in beside them, machines parted from the segment
// or from the API server, and their power cut; who claims which address there is noted.
//
// A CloudLab is a cloud without a cluster: whatever server is made through the API of the
// simulated cloud, by anybody, gets a namespace, its cables as it is attached and detached, and
// runs its user data. Its packets are treated as a measured cloud's profile says. Who measures
// is on the host outside.
//
// The interfaces "mgmt" are how programs reach the API server, so that a fault
// on a path of pods is not one of the control plane, and the other way round.
//
// A program calls Enter first and lives in a namespace of its own from then on.
// Nothing is ever made in the namespace that it was started in, and namespaces
// have no names: what Stop doesn't remove is gone with the process, also after a
// panic. Who isn't root gets ErrNotRoot.
//
// In a test's main function:
//
//	if err := netlab.Enter(); err != nil { ... }         // once, before anything
//	err := options.Binaries(ctx, folder)                  // builds the programs
//	f, err := netlab.Start(ctx, options)                  // until machines are ready
//	defer f.Stop()
//	p, err := f.RunPod(ctx, "a", "one", labels)           // answers on EchoPort
//	answer, err := netlab.Ask(ctx, p.Namespace, "tcp", q) // who, and from where
//	s, err := netlab.StartStream(ctx, p.Namespace, q, tick)
//	traffic := s.Stop()                                   // sent, lost, sources, the gap
//
// What a kubelet does for the programs of a machine, nobody does here: a
// kube-proxy that ends because its Node has other addresses stays down until
// RestartProxy, and an agent whose Node was deleted needs StartAgent, because its
// token went with the Node.
//
// The facts about the cloud's network are those of the simulator; interfaces and
// addresses of its servers are as its documentation on cloud networks shows
// them.
package netlab
