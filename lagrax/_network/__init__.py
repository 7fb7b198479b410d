"""The loop for networks: delays by the thousand, each of which reads one component of the state."""
