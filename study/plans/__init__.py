"""Plans: the wishes of the user, and the arms, configurations and protocol that follow from them."""
