"""Plans: what is asked for, and the arms, configurations and protocol that follow from it."""
